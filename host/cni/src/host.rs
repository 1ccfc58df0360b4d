//! One question and one answer over the host's unix socket, within one deadline.
//!
//! Handles bytes, not their meaning.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::error::{CniError, DECODING, IO, TRY_AGAIN_LATER};

/// The longest answer, without its newline.
const ANSWER_BYTES_MAX: usize = 1 << 20;

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
/// Code 11 if the socket is missing or refuses, if `timeout` passes, or if the host closes without an answer; 6 for an
/// answer over the limit; 5 for the rest, such as no permission.
pub(crate) fn exchange(socket: &Path, request: Vec<u8>, timeout: Duration) -> Result<Line, CniError> {
    let (give, answer) = mpsc::channel();
    let path = socket.to_owned();
    // A thread of its own, since connecting has no time limit: a host with a full backlog accepts nothing. The process
    // ends without waiting for it.
    let asking = thread::Builder::new().spawn(move || give.send(ask(&path, &request)));
    asking.map_err(|error| CniError::new(TRY_AGAIN_LATER, format!("starting a thread: {error}")))?;
    answer.recv_timeout(timeout).unwrap_or_else(|error| {
        Err(match error {
            RecvTimeoutError::Timeout => {
                let (socket, ms) = (socket.display(), timeout.as_millis());
                let msg = format!("the host at `{socket}` did not answer within {ms} ms");
                CniError::new(TRY_AGAIN_LATER, msg)
            }
            RecvTimeoutError::Disconnected => CniError::new(IO, "the plugin failed of itself: stderr says where"),
        })
    })
}

fn ask(socket: &Path, request: &[u8]) -> Result<Line, CniError> {
    let mut stream = UnixStream::connect(socket).map_err(|error| not_connected(socket, &error))?;
    let broken = |doing: &str, error: &io::Error| {
        CniError::new(IO, format!("{doing} the host at `{}`: {error}", socket.display()))
    };
    match stream.write_all(request) {
        // The host may have answered before it hung up, for instance that it refuses this user.
        Err(error) if !is_hang_up(&error) => return Err(broken("writing to", &error)),
        _ => {}
    }
    let mut bytes = Vec::new();
    let limit = ANSWER_BYTES_MAX as u64 + 1;
    match BufReader::new(stream.take(limit)).read_until(b'\n', &mut bytes) {
        Err(error) if !is_hang_up(&error) => return Err(broken("reading from", &error)),
        _ => {}
    }
    let ended = bytes.pop_if(|byte| *byte == b'\n').is_some();
    if bytes.len() > ANSWER_BYTES_MAX {
        let msg = format!("the host's answer is longer than {ANSWER_BYTES_MAX} bytes");
        return Err(CniError::new(DECODING, msg));
    }
    if bytes.is_empty() && !ended {
        let socket = socket.display();
        let msg = format!("the host at `{socket}` hung up before its answer; was it stopped?");
        return Err(CniError::new(TRY_AGAIN_LATER, msg));
    }
    Ok(Line { bytes, ended })
}

fn not_connected(socket: &Path, error: &io::Error) -> CniError {
    let text = format!("connecting to the host at `{}`: {error}", socket.display());
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => {
            let msg = format!("the host is down: {text}; start `trueup run`, or correct `ipam.socket`");
            CniError::new(TRY_AGAIN_LATER, msg)
        }
        ErrorKind::PermissionDenied => {
            CniError::new(IO, format!("{text}; only root and the host's own user may ask it"))
        }
        _ => CniError::new(IO, text),
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}
