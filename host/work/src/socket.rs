//! Unix sockets of one host: locked, bound for its user only, bound again if something removes the file, and removed
//! when the host exits.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::time::Interval;
use trueup_base::file_lock::{FileLock, NotLocked};
use trueup_base::replace::Durable;
use trueup_base::{folder, regular};

use crate::setup::SetupError;

/// Only the host's user may assign addresses, and hold the lock.
const MODE: u32 = 0o600;

/// The maximum path length in a socket address (`sun_path` in unix(7), including the terminator), in bytes.
const PATH_BYTES_MAX: usize = 108;

/// How often the host looks whether its socket is still at its path.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pause if the process has no file descriptor for another connection. Others end meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
        let mut reachable = path.to_owned();
        let mut open = None;
        if let (Some(folder), Some(name), true) = (path.parent(), path.file_name(), is_long) {
            let folder = open.insert(File::open(folder)?);
            reachable = Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        }
        Ok(Self {
            path: reachable,
            _folder: open,
        })
    }

    /// Where a socket can be bound or connected.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The exclusive path of a socket.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    /// Held as long as the socket is ours. Otherwise two hosts that start at the same time would remove each other's
    /// socket.
    _lock: FileLock,
}

impl SocketPath {
    /// Takes the path: creates its folder, and removes the socket of an ended host.
    ///
    /// # Errors
    /// If another host serves there, or the path is unusable.
    pub async fn take(path: &Path) -> Result<Self, SetupError> {
        let shown = path.display();
        let failed = |error: io::Error| SetupError::Failed(format!("socket `{shown}`: {error}"));
        let taken = || {
            let next = "stop it, or give this one a `socket` of its own";
            SetupError::Failed(format!("socket `{shown}`: another host serves there; {next}"))
        };
        folder::make(regular::folder_of(path), Durable::No).map_err(failed)?;
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(MODE)
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
                let next = "move it away, or name another `socket`";
                let why = format!("socket `{shown}`: something else is there; {next}");
                return Err(SetupError::Misused(why));
            }
            Ok(_) => match UnixStream::connect(Reachable::new(path).map_err(failed)?.path()).await {
                Ok(_) => return Err(taken()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
            },
        }
        let path = path.to_owned();
        Ok(Self { path, _lock: lock })
    }

    /// Listens on the path.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn listen(self) -> Result<OwnSocket, SetupError> {
        Ok(OwnSocket {
            listener: self.bind()?,
            path: self,
            look: tokio::time::interval(LOOK_EVERY),
            is_missing: false,
            was_refused: false,
        })
    }

    fn bind(&self) -> Result<UnixListener, SetupError> {
        let failed = |error: io::Error| SetupError::Failed(format!("socket `{}`: {error}", self.path.display()));
        let listener = UnixListener::bind(Reachable::new(&self.path).map_err(failed)?.path()).map_err(failed)?;
        // A client that connects before this is still checked.
        std::fs::set_permissions(&self.path, Permissions::from_mode(MODE)).map_err(failed)?;
        Ok(listener)
    }
}

/// A socket that listens. The file is removed on drop.
#[derive(Debug)]
pub struct OwnSocket {
    path: SocketPath,
    listener: UnixListener,
    look: Interval,
    /// Whether the file was removed and could not be bound again yet.
    is_missing: bool,
    /// Whether the last connection could not be accepted.
    was_refused: bool,
}

impl OwnSocket {
    /// The next connection. Dropping the future loses no connection. Check the client with [`may_ask`].
    pub async fn accept(&mut self) -> (UnixStream, unix::SocketAddr) {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => {
                        self.was_refused = false;
                        return accepted;
                    }
                    Err(error) => {
                        // This is temporary: connections end and free their file descriptors.
                        if !std::mem::replace(&mut self.was_refused, true) {
                            tracing::warn!("a connection can't be accepted: {error}; still trying");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                _ = self.look.tick() => self.bind_if_removed(),
            }
        }
    }

    /// The address of the socket, as the kernel has it.
    ///
    /// # Errors
    /// If the kernel does not say it.
    pub fn local_addr(&self) -> io::Result<unix::SocketAddr> {
        self.listener.local_addr()
    }

    /// Clients of a socket whose file is gone would wait for a restart of the host. The folder is not made again: it
    /// may be a state folder that was moved, which a host must not begin anew.
    fn bind_if_removed(&mut self) {
        let path = self.path.path.display();
        let is_removed =
            std::fs::symlink_metadata(&self.path.path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if !is_removed {
            self.is_missing = false;
            return;
        }
        match self.path.bind() {
            Ok(listener) => {
                self.listener = listener;
                self.is_missing = false;
                tracing::warn!("socket `{path}` was removed: the host made it again");
            }
            Err(error) if !self.is_missing => {
                self.is_missing = true;
                tracing::error!(
                    "{error}; put its folder back if it was moved, make it again if it was removed: the host then listens there again"
                );
            }
            Err(_) => {}
        }
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("socket `{}` is not removed: {error}", self.path.path.display());
        }
    }
}

/// Accepts only root and the host's own user, whatever the mode of the socket is.
///
/// # Errors
/// The user that is refused.
pub fn may_ask(stream: &UnixStream) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    let refused = |user: u32| format!("user {user} may not ask: only root and the host's own user may");
    match stream.peer_cred().map(|peer| peer.uid()) {
        Ok(user) if user == 0 || user == own => Ok(()),
        Ok(user) => Err(refused(user)),
        Err(error) => Err(format!("who asks is not known: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_removed_socket_is_bound_again_but_its_folder_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/host.sock");
        let mut socket = SocketPath::take(&path).await.unwrap().listen().unwrap();
        std::fs::remove_file(&path).unwrap();
        socket.bind_if_removed();
        UnixStream::connect(&path).await.unwrap();
        socket.accept().await;

        std::fs::remove_dir_all(dir.path().join("run")).unwrap();
        socket.bind_if_removed();
        assert!(!dir.path().join("run").exists());
        std::fs::create_dir(dir.path().join("run")).unwrap();
        socket.bind_if_removed();
        UnixStream::connect(&path).await.unwrap();
        drop(socket);
        assert!(!path.exists());
    }
}
