//! One question and one answer over the host's unix socket, within one deadline.
//!
//! Handles bytes, not their meaning.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::answer::NoAnswer;

/// The longest answer, without its newline.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The read size: every answer but an error with a long text fits.
const READ_BYTES: usize = 4096;
/// The write size: the kernel takes this much in one piece, so that one write waits once and the deadline holds.
const WRITE_BYTES: usize = 16 * 1024;
/// The kernel takes a time limit of zero as no limit, and none below its own tick.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// What the host sent up to its first newline, or until it closed the connection.
#[derive(Debug)]
pub(crate) struct Line {
    /// Without the newline.
    pub(crate) bytes: Vec<u8>,
    /// Whether the newline came.
    pub(crate) ended: bool,
}

/// Connects, sends `request`, and reads one line.
///
/// # Errors
/// `Down` if the socket is missing or refuses, if `timeout` passes, or if the host closes without an answer; `Garbled`
/// for an answer over the limit; `Unusable` for the rest, such as no permission.
pub(crate) fn exchange(socket: &Path, request: &[u8], timeout: Duration) -> Result<Line, NoAnswer> {
    let call = Call {
        socket,
        started: Instant::now(),
        timeout,
    };
    let mut stream = call.connect()?;
    call.send(&mut stream, request)?;
    call.receive(&mut stream)
}

struct Call<'a> {
    socket: &'a Path,
    started: Instant,
    timeout: Duration,
}

impl Call<'_> {
    /// The standard library's `connect` would wait for ever if the host's backlog is full. On Linux the limit for
    /// sending also applies to connecting.
    fn connect(&self) -> Result<UnixStream, NoAnswer> {
        let connected = || {
            let address = SocketAddrUnix::new(self.socket)?;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            loop {
                let Some(left) = self.left() else {
                    return Err(Errno::AGAIN);
                };
                set_socket_timeout(&socket, Timeout::Send, Some(left))?;
                match connect(&socket, &address) {
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                    Ok(()) => return Ok(UnixStream::from(socket)),
                }
            }
        };
        connected().map_err(|errno| self.not_connected(errno))
    }

    fn not_connected(&self, errno: Errno) -> NoAnswer {
        let text = format!(
            "connecting to the host at `{}`: {}",
            self.socket.display(),
            io::Error::from(errno)
        );
        match errno {
            Errno::AGAIN => self.too_late(),
            Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED | Errno::CONNRESET => NoAnswer::Down(format!(
                "the host is down: {text}; start `trueup run`, or correct `ipam.socket`"
            )),
            Errno::ACCESS | Errno::PERM => {
                NoAnswer::Unusable(format!("{text}; only root and the host's own user may ask it"))
            }
            _ => NoAnswer::Unusable(text),
        }
    }

    fn send(&self, stream: &mut UnixStream, request: &[u8]) -> Result<(), NoAnswer> {
        let mut rest = request;
        while !rest.is_empty() {
            let left = self.left().ok_or_else(|| self.too_late())?;
            stream
                .set_write_timeout(Some(left))
                .map_err(|error| self.broken("writing to", &error))?;
            let (piece, _) = rest.split_at(rest.len().min(WRITE_BYTES));
            match stream.write(piece) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The host may have answered before it hung up, for instance that it refuses this user.
                Err(error) if is_hang_up(&error) => return Ok(()),
                Err(error) => return Err(self.broken("writing to", &error)),
            }
        }
        Ok(())
    }

    fn receive(&self, stream: &mut UnixStream) -> Result<Line, NoAnswer> {
        let mut answer = Vec::new();
        let mut piece = [0; READ_BYTES];
        loop {
            let left = self.left().ok_or_else(|| self.too_late())?;
            stream
                .set_read_timeout(Some(left))
                .map_err(|error| self.broken("reading from", &error))?;
            let read = match stream.read(&mut piece) {
                Ok(read) => piece.get(..read).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_hang_up(&error) => &[],
                Err(error) => return Err(self.broken("reading from", &error)),
            };
            let end = read.iter().position(|byte| *byte == b'\n');
            answer.extend_from_slice(read.get(..end.unwrap_or(read.len())).unwrap_or_default());
            if answer.len() > ANSWER_BYTES_MAX {
                let text = format!("the host's answer is longer than {ANSWER_BYTES_MAX} bytes");
                return Err(NoAnswer::Garbled(text));
            }
            if end.is_none() && read.is_empty() && answer.is_empty() {
                let text = format!(
                    "the host at `{}` hung up before its answer; was it stopped?",
                    self.socket.display()
                );
                return Err(NoAnswer::Down(text));
            }
            if end.is_some() || read.is_empty() {
                let (bytes, ended) = (answer, end.is_some());
                return Ok(Line { bytes, ended });
            }
        }
    }

    /// The remaining time; `None` if it is over.
    fn left(&self) -> Option<Duration> {
        let left = self.timeout.checked_sub(self.started.elapsed())?;
        Some(left.max(WAIT_MIN))
    }

    fn too_late(&self) -> NoAnswer {
        let (socket, ms) = (self.socket.display(), self.timeout.as_millis());
        NoAnswer::Down(format!("the host at `{socket}` did not answer within {ms} ms"))
    }

    fn broken(&self, doing: &str, error: &io::Error) -> NoAnswer {
        match error.kind() {
            // The time limit passed.
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.too_late(),
            _ => NoAnswer::Unusable(format!("{doing} the host at `{}`: {error}", self.socket.display())),
        }
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}
