//! The program in one namespace: an echo server that sends its name, and a client that follows orders. The test knows
//! the orders and the expected results.
//!
//! It is this test's own program, started again in the namespace, since a thread can enter another namespace only with
//! unsafe code. Orders and answers are lines of JSON; the program ends with its stdin.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dialing::{Attempt, Connection, Dial};

/// Names the agent, and turns this program into one.
pub(crate) const NAME: &str = "TRUEUP_TRAFFIC_AGENT";

/// The prefix of answers; the test harness prints lines of its own.
pub(crate) const ANSWER: &str = "agent: ";

/// The port of every agent, whether or not a client connects.
pub(crate) const PORT: u16 = 8080;

/// The pause between two of the continuous connections: short enough that each change meets some, and long enough that
/// ten clients leave processor time for the changes.
const CHURN_PAUSE: Duration = Duration::from_millis(20);

/// The pause between two exchanges of a held connection, of which there are more.
const HOLD_PAUSE: Duration = Duration::from_millis(250);

/// An order to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Makes new connections, and returns the result of each: `Vec<Attempt>`.
    Dial(Dial),
    /// Connects to each address, and uses the connections until `Release`. Answers once all are made: `()`.
    Hold { to: Vec<SocketAddr> },
    /// Makes new connections to these addresses in turn until `Release`. Answers at once: `()`.
    Churn { to: Vec<SocketAddr> },
    /// Ends both, and returns their results: `Released`.
    Release,
}

/// The results between an order and `Release`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Released {
    pub(crate) held: Vec<Held>,
    pub(crate) churned: Vec<Attempt>,
}

/// The result of one held connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) to: SocketAddr,
    pub(crate) pod: String,
    /// How many lines came back, or why one did not.
    pub(crate) exchanges: Result<u32, String>,
}

/// Only runs when the test starts it in a namespace; otherwise it does nothing.
#[test]
#[ignore = "not a test, but what the tests of this file start in namespaces"]
fn in_a_namespace() {
    let Ok(name) = std::env::var(NAME) else { return };
    // Serves both families.
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

/// Sends each client the agent's name and the client's address, and then echoes its lines.
fn serve(listener: &TcpListener, name: &str) {
    for stream in listener.incoming() {
        // The client left before the accept.
        let Ok(stream) = stream else { continue };
        let name = name.to_owned();
        // A client that leaves early reports that itself.
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

/// The activities until `Release`.
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

/// Runs once more after the stop, so that the connection also outlives the last change.
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
