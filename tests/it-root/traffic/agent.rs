//! What runs in one namespace: an echo server that tells its name, and a client that does as it is told. What it is told
//! to do, and what is expected of it, the test knows.
//!
//! It is this test's own program, started again in the namespace: a thread enters another only with code that is unsafe.
//! Orders come as lines of JSON, and so do the answers; the program ends with its stdin.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dialing::{Attempt, Connection, Dial};

/// Names the agent, and makes this program one.
pub(crate) const NAME: &str = "TRUEUP_TRAFFIC_AGENT";

/// What an answer begins with; the test harness prints lines of its own.
pub(crate) const ANSWER: &str = "agent: ";

/// Where every agent serves, whether or not anybody comes.
pub(crate) const PORT: u16 = 8080;

/// Between two of the connections that are made all the time: so often that each change meets some, so seldom that ten
/// clients leave the machine to who makes the changes.
const CHURN_PAUSE: Duration = Duration::from_millis(20);

/// Between two exchanges of a held connection. There are more of these.
const HOLD_PAUSE: Duration = Duration::from_millis(250);

/// What an agent can be told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Makes new connections, and answers how each went: `Vec<Attempt>`.
    Dial(Dial),
    /// Makes a connection to each address, and uses it until `Release`. Answers once all are there: `()`.
    Hold { to: Vec<SocketAddr> },
    /// Makes new connections to these addresses in turn until `Release`. Answers at once: `()`.
    Churn { to: Vec<SocketAddr> },
    /// Ends both, and answers how they went: `Released`.
    Release,
}

/// How it went, from an order to `Release`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Released {
    pub(crate) held: Vec<Held>,
    pub(crate) churned: Vec<Attempt>,
}

/// How one connection went that was held.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) to: SocketAddr,
    pub(crate) pod: String,
    /// How often a line was sent and came back, or why it did not.
    pub(crate) exchanges: Result<u32, String>,
}

/// Started again by the test in a namespace. By itself it has nothing to do.
#[test]
#[ignore = "not a test, but what the tests of this file start in namespaces"]
fn in_a_namespace() {
    let Ok(name) = std::env::var(NAME) else { return };
    // Both families.
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap();
    thread::spawn(move || serve(&listener, &name));
    answer(&());
    let mut work = Work::default();
    for line in io::stdin().lines() {
        match serde_json::from_str(&line.unwrap()).unwrap() {
            Order::Dial(dial) => answer(&dial.attempts()),
            Order::Hold { to } => {
                to.into_iter().for_each(|to| work.hold(to));
                answer(&());
            }
            Order::Churn { to } => {
                work.churn(to);
                answer(&());
            }
            Order::Release => answer(&std::mem::take(&mut work).released()),
        }
    }
}

fn answer(content: &impl Serialize) {
    let line = format!("{ANSWER}{}\n", serde_json::to_string(content).unwrap());
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes()).unwrap();
    stdout.flush().unwrap();
}

/// Tells whoever comes the name and where they come from, and then what they say.
fn serve(listener: &TcpListener, name: &str) {
    for stream in listener.incoming() {
        // A client that went before it was let in.
        let Ok(stream) = stream else { continue };
        let name = name.to_owned();
        // A client that goes in the middle is for itself to tell.
        thread::spawn(move || _ = echo(stream, &name));
    }
}

fn echo(mut stream: TcpStream, name: &str) -> io::Result<()> {
    let client: IpAddr = stream.peer_addr()?.ip().to_canonical();
    stream.set_nodelay(true)?;
    stream.write_all(format!("{name} {client}\n").as_bytes())?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        stream.write_all(line.as_bytes())?;
        line.clear();
    }
    Ok(())
}

/// What goes on until `Release`.
#[derive(Default)]
struct Work {
    ending: Arc<AtomicBool>,
    held: Vec<JoinHandle<Held>>,
    churning: Vec<JoinHandle<Vec<Attempt>>>,
}

impl Work {
    fn hold(&mut self, to: SocketAddr) {
        let mut connection = Connection::open(to, None, None).unwrap();
        let ending = Arc::clone(&self.ending);
        self.held.push(thread::spawn(move || Held {
            to,
            pod: connection.seen.pod.clone(),
            exchanges: exchange_until(&mut connection, &ending).map_err(|error| error.to_string()),
        }));
    }

    fn churn(&mut self, to: Vec<SocketAddr>) {
        let ending = Arc::clone(&self.ending);
        self.churning.push(thread::spawn(move || {
            let mut attempts = Vec::new();
            for to in to.into_iter().cycle() {
                if ending.load(Ordering::Relaxed) {
                    break;
                }
                attempts.push(Attempt::new(to, None, None));
                thread::sleep(CHURN_PAUSE);
            }
            attempts
        }));
    }

    fn released(self) -> Released {
        self.ending.store(true, Ordering::Relaxed);
        Released {
            held: self.held.into_iter().map(|one| one.join().unwrap()).collect(),
            churned: self.churning.into_iter().flat_map(|one| one.join().unwrap()).collect(),
        }
    }
}

/// Once more after the end was asked for: what comes after the last change is held as well.
fn exchange_until(connection: &mut Connection, ending: &AtomicBool) -> io::Result<u32> {
    let mut exchanges = 0;
    loop {
        let is_last = ending.load(Ordering::Relaxed);
        connection.exchange(&format!("still here, {exchanges}\n"))?;
        exchanges += 1;
        if is_last {
            return Ok(exchanges);
        }
        thread::sleep(HOLD_PAUSE);
    }
}
