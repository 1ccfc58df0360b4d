//! Which host reached the Engine when, and which one held the Lease then.
//!
//! Each host reaches the Engine through its own relay, which records when its bytes arrive. The API server's records
//! tell who held the Lease, by the same clock. Knows nothing about hosts, or about their requests.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::api_server::LeaseChange;

/// One host's only way to the Engine; dropping the value closes it. Open connections end with the host.
pub(super) struct Relay {
    address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Instant>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// A free port of the loopback that leads to `engine`.
    pub(super) fn start(engine: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (arrivals, ends) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let thread = thread::spawn({
            let (arrivals, ends) = (Arc::clone(&arrivals), Arc::clone(&ends));
            move || {
                for host in listener.incoming() {
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    // Without an Engine the host's connection just ends, as it would at the Engine.
                    if let (Ok(host), Ok(engine)) = (host, TcpStream::connect(engine)) {
                        connect(host, engine, &arrivals);
                    }
                }
            }
        });
        Self {
            address,
            arrivals,
            ends,
            thread: Some(thread),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The times when bytes from the host arrived, in order.
    pub(super) fn arrivals(&self) -> Vec<Instant> {
        self.arrivals.lock().unwrap().clone()
    }

    /// How often bytes arrived at or after a moment.
    pub(super) fn arrived_since(&self, since: Instant) -> usize {
        let arrivals = self.arrivals.lock().unwrap();
        arrivals.iter().rev().take_while(|at| **at >= since).count()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // The listener that waits for a connection gets this one.
        if TcpStream::connect(self.address).is_ok() {
            _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

/// Passes bytes both ways until either end closes; records those of the host before it sends them on.
fn connect(host: TcpStream, engine: TcpStream, arrivals: &Arc<Mutex<Vec<Instant>>>) {
    // Requests and answers are small and wait for each other.
    for socket in [&host, &engine] {
        socket.set_nodelay(true).unwrap();
    }
    let (from_engine, to_host) = (engine.try_clone().unwrap(), host.try_clone().unwrap());
    let arrivals = Arc::clone(arrivals);
    thread::spawn(move || pass(host, engine, || arrivals.lock().unwrap().push(Instant::now())));
    thread::spawn(move || pass(from_engine, to_host, || {}));
}

fn pass(mut from: TcpStream, mut to: TcpStream, arrived: impl Fn()) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        arrived();
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    for socket in [from, to] {
        // Ignore the error: it may already be gone.
        _ = socket.shutdown(Shutdown::Both);
    }
}

/// From this moment on the named host, or none, holds the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) at: Instant,
    /// `None` if it was given back, or its time ended.
    pub(super) host: Option<String>,
}

/// How the Lease changed hands. Each process is a holder of its own; its host is the writer. A process that did not
/// renew for a lease's time must acquire it again, even if no other did meanwhile.
pub(super) fn turns(changes: &[LeaseChange]) -> Vec<Turn> {
    let mut turns = Vec::new();
    let (mut holder, mut over) = (String::new(), None::<Instant>);
    for change in changes {
        if let Some(at) = over.filter(|over| *over < change.at) {
            turns.push(Turn { at, host: None });
            holder.clear();
        }
        if change.holder != holder {
            turns.push(Turn {
                at: change.at,
                host: (!change.holder.is_empty()).then(|| change.user.clone()),
            });
        }
        holder.clone_from(&change.holder);
        let seconds = u64::try_from(change.duration_s).unwrap();
        over = (!holder.is_empty()).then(|| change.at + Duration::from_secs(seconds));
    }
    // The last holder may have died too.
    turns.extend(over.map(|at| Turn { at, host: None }));
    turns
}

/// The bytes that reached the Engine from a host without the Lease: one line each.
pub(super) fn breaches(turns: &[Turn], arrivals: &BTreeMap<String, Vec<Instant>>) -> Vec<String> {
    let mut breaches = Vec::new();
    for (host, arrivals) in arrivals {
        for at in arrivals {
            let begun = turns.partition_point(|turn| turn.at <= *at);
            let turn = begun.checked_sub(1).map(|index| &turns[index]);
            if turn.and_then(|turn| turn.host.as_ref()) == Some(host) {
                continue;
            }
            breaches.push(match turn {
                None => format!("{host}, before anybody held the lease"),
                Some(turn) => {
                    let since = at.duration_since(turn.at);
                    let holder = turn.host.as_deref().unwrap_or("nobody");
                    format!("{host}, {since:?} after {holder} came to hold the lease")
                }
            });
        }
    }
    breaches
}

mod tests {
    use super::*;

    /// A Lease of three seconds, held by `host-N`'s process `holder`, this many ms after the beginning.
    fn written(began: Instant, ms: u64, holder: &str, host: &str) -> LeaseChange {
        LeaseChange {
            at: began + Duration::from_millis(ms),
            namespace: "default".to_owned(),
            name: "trueup".to_owned(),
            holder: holder.to_owned(),
            renew_time: String::new(),
            duration_s: if holder.is_empty() { 1 } else { 3 },
            transitions: 0,
            user: host.to_owned(),
            version: 1,
            deleted: false,
        }
    }

    #[test]
    fn who_acts_without_the_lease_is_found_out() {
        let began = Instant::now();
        let changes = [
            written(began, 1_000, "a", "host-1"),
            written(began, 2_000, "a", "host-1"),
            // Given back, and taken at once.
            written(began, 3_000, "", "host-1"),
            written(began, 3_010, "b", "host-2"),
            // Host 2 died, and came back.
            written(began, 9_000, "c", "host-2"),
        ];
        let turns = turns(&changes);
        let allowed = |host: &str, ms: u64| {
            let arrival = (host.to_owned(), vec![began + Duration::from_millis(ms)]);
            breaches(&turns, &[arrival].into()).is_empty()
        };
        let of = |host| {
            (0..14)
                .map(move |second| second * 1_000 + 5)
                .filter(move |ms| allowed(host, *ms))
        };
        assert_eq!(Vec::from_iter(of("host-1")), [1_005, 2_005]);
        assert_eq!(
            Vec::from_iter(of("host-2")),
            [4_005, 5_005, 6_005, 9_005, 10_005, 11_005]
        );
        assert!(allowed("host-2", 3_010) && !allowed("host-1", 3_010) && !allowed("host-2", 3_009));
        assert!(!allowed("host-2", 6_011), "its time ended");
        assert_eq!(of("host-3").count(), 0);
    }
}
