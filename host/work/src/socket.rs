//! Unix sockets of one host: locked, bound for its user only, and removed when the host exits.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tokio::net::{UnixListener, UnixStream};
use trueup_base::file_lock::{FileLock, NotLocked};
use trueup_base::replace::Durable;
use trueup_base::{folder, regular};

use crate::setup::SetupError;

/// Only the host's user may assign addresses.
const SOCKET_MODE: u32 = 0o600;

/// Only the host's user may hold the lock.
const LOCK_MODE: u32 = 0o600;

/// The maximum path length in a socket address (`sun_path` in unix(7), including the terminator), in bytes.
const PATH_BYTES_MAX: usize = 108;

/// A path to a socket that works even in a deep folder.
pub struct Reachable {
    path: PathBuf,
    /// The path leads through this open folder.
    _folder: Option<File>,
}

impl Reachable {
    /// # Errors
    /// If the folder of a long path cannot be opened.
    pub fn new(path: &Path) -> io::Result<Self> {
        let is_long = path.as_os_str().len() >= PATH_BYTES_MAX;
        let (Some(folder), Some(name), true) = (path.parent(), path.file_name(), is_long) else {
            return Ok(Self {
                path: path.to_owned(),
                _folder: None,
            });
        };
        let folder = File::open(folder)?;
        let path = Path::new("/proc/self/fd")
            .join(folder.as_raw_fd().to_string())
            .join(name);
        Ok(Self {
            path,
            _folder: Some(folder),
        })
    }

    /// Where a socket can be bound or connected.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The exclusive path of a socket. The file is removed on drop.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    /// Held as long as the socket is ours. Otherwise two hosts that start at the same time would remove each other's
    /// socket.
    _lock: FileLock,
    is_bound: bool,
}

impl SocketPath {
    /// Takes the path: creates its folder, and removes the socket of an ended host.
    ///
    /// # Errors
    /// If another host serves there, or the path is unusable.
    pub async fn take(path: &Path) -> Result<Self, SetupError> {
        let failed = |error: io::Error| SetupError::Failed(format!("socket `{}`: {error}", path.display()));
        let taken = || {
            SetupError::Failed(format!(
                "socket `{}`: another host serves there; stop it, or give this one a `socket` of its own",
                path.display()
            ))
        };
        folder::make(regular::folder_of(path), Durable::No).map_err(failed)?;
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(LOCK_MODE)
            // The target of a link may belong to another user.
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(lock)
            .map_err(failed)?;
        let lock = FileLock::take(lock).map_err(|error| match error {
            NotLocked::Taken(_) => taken(),
            NotLocked::Failed(error) => failed(error),
        })?;
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SetupError::Misused(format!(
                    "socket `{}`: something else is there; move it away, or name another `socket`",
                    path.display()
                )));
            }
            Ok(_) => match UnixStream::connect(Reachable::new(path).map_err(failed)?.path()).await {
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

    /// Listens on the path.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn listen(&mut self) -> Result<UnixListener, SetupError> {
        let failed = |error: io::Error| SetupError::Failed(format!("socket `{}`: {error}", self.path.display()));
        let reachable = Reachable::new(&self.path).map_err(failed)?;
        let listener = UnixListener::bind(reachable.path()).map_err(failed)?;
        self.is_bound = true;
        // A client that connects before this is still checked.
        std::fs::set_permissions(&self.path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
        Ok(listener)
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if self.is_bound
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("socket `{}` is not removed: {error}", self.path.display());
        }
    }
}

/// Accepts only root and the host's own user, whatever the mode of the socket is.
///
/// # Errors
/// The user that is refused.
pub fn may_ask(stream: &UnixStream) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own => Ok(()),
        Ok(peer) => Err(format!(
            "user {} may not ask: only root and the host's own user may",
            peer.uid()
        )),
        Err(error) => Err(format!("who asks is not known: {error}")),
    }
}
