//! The socket: who may ask, one line each way, how long anyone may take.
//!
//! Knows lines; what they say is `protocol.rs`, who carries them out is `router.rs`.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::protocol::{self, Answer, LINE_BYTES_MAX, Refusal, code};
use super::router::Router;
use crate::run::SetupError;

/// So many connections are served at once, those that wait for their answer included; more wait to be accepted. A node
/// runs some hundred pods, and starts fewer at a time.
pub const CONNECTIONS_MAX: usize = 1024;

/// A client has so long to send its request, and so long to take its answer: the plugin's own limit for the whole call.
const CLIENT_MAX: Duration = Duration::from_secs(10);

/// Where the process has no file for one more connection, others end meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Folders on the way to the socket are for the host's user.
const DIR_MODE: u32 = 0o700;

/// Addresses are for the host's user to give.
const SOCKET_MODE: u32 = 0o600;

/// A place for a socket that no other host has. Removed when it goes.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Held as long as the socket is ours, or two hosts that start at once would remove each other's.
    _lock: File,
    is_bound: bool,
}

impl Place {
    /// Takes the place: creates its folder, and removes the socket of a host that is gone.
    ///
    /// # Errors
    /// Where another host serves there, or the place can't be used.
    pub(super) async fn take(path: &Path) -> Result<Self, SetupError> {
        let failed = |error: io::Error| SetupError::Failed(format!("socket `{}`: {error}", path.display()));
        let taken = || {
            SetupError::Failed(format!(
                "socket `{}`: another host serves there; stop it, or give this one a `socket` of its own",
                path.display()
            ))
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(DIR_MODE)
                .create(folder)
                .map_err(failed)?;
        }
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(lock)
            .map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(taken()),
            Err(error) => return Err(failed(error.into())),
        }
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SetupError::Misused(format!(
                    "socket `{}`: something else is there; move it away, or name another `socket`",
                    path.display()
                )));
            }
            Ok(_) => match UnixStream::connect(path).await {
                Ok(_) => return Err(taken()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
            },
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            is_bound: false,
        })
    }

    /// Listens there.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(super) fn listen(&mut self) -> Result<UnixListener, SetupError> {
        let failed = |error: io::Error| SetupError::Failed(format!("socket `{}`: {error}", self.path.display()));
        let listener = UnixListener::bind(&self.path).map_err(failed)?;
        self.is_bound = true;
        // Who connects before this is looked at all the same.
        std::fs::set_permissions(&self.path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
        Ok(listener)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_bound
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("socket `{}` is not removed: {error}", self.path.display());
        }
    }
}

/// Serves until `closing` says true, then until the connections with a request have their answers.
pub(super) async fn serve(listener: UnixListener, router: Arc<Router>, mut closing: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut was_refused = false;
    loop {
        let place = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => break,
            Some(_) = connections.join_next() => continue,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        // It is never closed.
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                was_refused = false;
                let (router, closing) = (Arc::clone(&router), closing.clone());
                connections.spawn(async move {
                    connection(stream, &router, closing).await;
                    drop(place);
                });
            }
            Err(error) => {
                // Not for ever: connections end, and with them their files.
                if !std::mem::replace(&mut was_refused, true) {
                    tracing::warn!("a connection can't be accepted: {error}; trying on");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    drop(router);
    while connections.join_next().await.is_some() {}
}

async fn connection(stream: UnixStream, router: &Router, mut closing: watch::Receiver<bool>) {
    let mut stream = BufReader::new(stream);
    let answer = match may_ask(stream.get_ref()) {
        Err(refusal) => Err(refusal),
        Ok(()) => {
            let line = tokio::select! {
                biased;
                line = timeout(CLIENT_MAX, request(&mut stream)) => line,
                _ = closing.wait_for(|closing| *closing) => return,
            };
            match line {
                Ok(Ok(Some(line))) => router.answer(&line).await,
                Ok(Ok(None)) => Err(Refusal::new(
                    code::DECODING,
                    format!("the request is longer than {LINE_BYTES_MAX} bytes"),
                )),
                // Nobody is there to be told.
                Ok(Err(_)) => return,
                Err(_) => Err(Refusal::new(
                    code::IO,
                    format!("no request came within {} s", CLIENT_MAX.as_secs()),
                )),
            }
        }
    };
    give(&mut stream, &answer).await;
}

async fn give(stream: &mut BufReader<UnixStream>, answer: &Answer) {
    let line = protocol::line(answer);
    let given = timeout(CLIENT_MAX, async {
        stream.write_all(&line).await?;
        stream.shutdown().await
    });
    // Who went away in the middle asks again, or does not want to know.
    let _ = given.await;
}

/// The line without its end; none where it is too long.
async fn request(stream: &mut BufReader<UnixStream>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    stream.take(most).read_until(b'\n', &mut line).await?;
    if line.pop_if(|end| *end == b'\n').is_some() {
        return Ok(Some(line));
    }
    match line.len() {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length if length < LINE_BYTES_MAX => Ok(Some(line)),
        _ => Ok(None),
    }
}

fn may_ask(stream: &UnixStream) -> Result<(), Refusal> {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own => Ok(()),
        Ok(peer) => Err(Refusal::new(
            code::IO,
            format!("user {} may not ask: only root and the host's own user may", peer.uid()),
        )),
        Err(error) => Err(Refusal::new(code::IO, format!("who asks is not known: {error}"))),
    }
}
