//! New connections of a client, with the result of each.
//!
//! A connection counts once its greeting came and a line went to and fro. Times count from the machine's start, so they
//! are comparable between processes.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Longer than any successful connection takes: lost packets are sent again, after a second at first.
const PATIENCE: Duration = Duration::from_secs(60);

/// New connections, one after another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Dial {
    pub(crate) to: SocketAddr,
    /// Makes `times` connections from each; if empty, the system chooses.
    pub(crate) from: Vec<IpAddr>,
    pub(crate) times: u32,
    /// How long to wait for an answer; `None` waits as long as a loaded machine may take.
    pub(crate) patience_ms: Option<u64>,
}

impl Dial {
    pub(crate) fn to(to: impl Into<SocketAddr>, times: u32) -> Self {
        Self {
            to: to.into(),
            from: Vec::new(),
            times,
            patience_ms: None,
        }
    }

    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        let patience = self.patience_ms.map(Duration::from_millis);
        let sources: Vec<Option<IpAddr>> = match self.from.as_slice() {
            [] => vec![None],
            addresses => addresses.iter().copied().map(Some).collect(),
        };
        let attempts = sources.into_iter().flat_map(|from| (0..self.times).map(move |_| from));
        attempts.map(|from| Attempt::new(self.to, from, patience)).collect()
    }
}

/// The result of one new connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) to: SocketAddr,
    /// The times of its start, and of its greeting (or its failure).
    pub(crate) begun_us: u64,
    pub(crate) ended_us: u64,
    /// The error is the system's.
    pub(crate) result: Result<Seen, String>,
}

/// A pod's greeting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Its name.
    pub(crate) pod: String,
    /// The client's address, as the pod sees it.
    pub(crate) client: IpAddr,
}

impl Attempt {
    pub(crate) fn new(to: SocketAddr, from: Option<IpAddr>, patience: Option<Duration>) -> Self {
        let begun_us = now_us();
        let opened = Connection::open(to, from, patience);
        let ended_us = now_us();
        let used = opened.and_then(|mut connection| {
            connection.exchange("here I am\n")?;
            Ok(connection.seen)
        });
        Self {
            to,
            begun_us,
            ended_us,
            result: used.map_err(|error| error.to_string()),
        }
    }
}

/// A connection that has received its greeting.
pub(crate) struct Connection {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
    pub(crate) seen: Seen,
}

impl Connection {
    pub(crate) fn open(to: SocketAddr, from: Option<IpAddr>, patience: Option<Duration>) -> io::Result<Self> {
        let patience = Some(patience.unwrap_or(PATIENCE));
        let family = match to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket(family, SocketType::STREAM, None)?;
        // On Linux this also limits the time to connect.
        set_socket_timeout(&socket, Timeout::Send, patience)?;
        set_socket_timeout(&socket, Timeout::Recv, patience)?;
        if let Some(from) = from {
            bind(&socket, &SocketAddr::new(from, 0))?;
        }
        connect(&socket, &to).map_err(|error| match error {
            Errno::INPROGRESS => io::ErrorKind::TimedOut.into(),
            error => io::Error::from(error),
        })?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        let mut lines = BufReader::new(stream.try_clone()?);
        let mut greeting = String::new();
        lines.read_line(&mut greeting)?;
        let seen = greeting.trim_end().split_once(' ').and_then(|(pod, client)| {
            Some(Seen {
                pod: pod.to_owned(),
                client: client.parse().ok()?,
            })
        });
        let seen = seen.ok_or_else(|| io::Error::other(format!("`{greeting}` is no greeting")))?;
        Ok(Self { stream, lines, seen })
    }

    /// Sends a line and waits for its echo.
    pub(crate) fn exchange(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(line.as_bytes())?;
        let mut back = String::new();
        self.lines.read_line(&mut back)?;
        if back == line {
            Ok(())
        } else {
            Err(io::Error::other(format!("`{line}` came back as `{back}`")))
        }
    }
}

/// Microseconds since the machine's start.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1_000).unwrap()
}
