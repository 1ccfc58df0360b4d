//! What a host needs of its machine: the state folder, room on its disk, addresses to listen on.

use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::{fmt, io};

use rustix::fs::{Access, access, statvfs};
use tokio::net::UnixStream;
use trueup_base::folder::LOCK;
use trueup_config::AdminAt;
use trueup_work::needs::{Finding, Mark, Problem};
use trueup_work::socket::Reachable;

use crate::state_lock::{StateLock, another_owner, nested};

/// Below this a host stops recording soon: a busy one writes this much in minutes.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// Whether a host can write the state folder, or make it. Also whether one runs with it.
pub(super) fn state_folder(state_dir: &Path) -> (Finding, bool) {
    let check = "state folder";
    let shown = state_dir.display();
    let failed = |text: &dyn fmt::Display, next: &str| {
        let finding = Finding::wrong(check, Mark::Failed, Problem::new(text, next));
        (finding, false)
    };
    if state_dir.exists() && !state_dir.is_dir() {
        return failed(&format_args!("{shown} is no folder"), "name another one in `state_dir`");
    }
    let folder = existing(state_dir);
    let folder_shown = folder.display();
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        let text = format!("{shown}: {folder_shown} can't be written: {}", io::Error::from(error));
        let chown = format!("chown it (ls -ld {folder_shown})");
        let next = format!("run as the user that owns it, {chown}, or name another one in `state_dir`");
        return failed(&text, &next);
    }
    if let Some(nested) = nested(state_dir) {
        return (Finding::wrong(check, Mark::Failed, nested), false);
    }
    if let Some(owner) = another_owner(state_dir) {
        let trouble = Problem::new(
            format!("{shown} belongs to user {owner} alone"),
            "run the host as that user; a check and a plan by this one leave nothing behind",
        );
        let is_running = StateLock::taken(state_dir).is_ok_and(|taken| taken.is_some());
        return (Finding::wrong(check, Mark::Warning, trouble), is_running);
    }
    match StateLock::taken(state_dir) {
        Ok(None) if folder != state_dir => (Finding::ok(check, format!("{shown}: a run creates it")), false),
        Ok(None) => (Finding::ok(check, shown.to_string()), false),
        Ok(Some(taken)) => {
            let next = "nothing if that is this host: trueup status shows it; otherwise give this one a `state_dir` of its own";
            (Finding::wrong(check, Mark::Warning, Problem::new(taken, next)), true)
        }
        Err(error) => {
            let lock = state_dir.join(LOCK);
            failed(&error, &format!("correct the owner and mode of {}", lock.display()))
        }
    }
}

/// The folder itself, or the nearest one above it that exists.
fn existing(folder: &Path) -> &Path {
    let mut named = folder.ancestors().filter(|path| !path.as_os_str().is_empty());
    named.find(|path| path.exists()).unwrap_or(Path::new("."))
}

/// How much room a host has.
pub(super) fn disk(state_dir: &Path) -> Result<String, Problem> {
    let folder = existing(state_dir);
    let too_little = |text: &dyn fmt::Display, bytes: u64| {
        let df = format!("df -h {}: free {} MiB", folder.display(), bytes >> 20);
        let next = format!("{df}, lower `keep_total_bytes` of [journal], or move `state_dir`");
        Problem::new(text, next)
    };
    let room = statvfs(folder).map_err(|error| too_little(&io::Error::from(error), FREE_BYTES_MIN))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let text = format!("{} MiB free at {}", free >> 20, folder.display());
    match FREE_BYTES_MIN.checked_sub(free) {
        None | Some(0) => Ok(text),
        Some(missing) => Err(too_little(&text, missing)),
    }
}

/// Whether a host can listen there. One that `is_running` may do so already.
pub(super) async fn listens(key: &str, at: &AdminAt, is_running: bool) -> Result<String, Problem> {
    let (free, next) = match at {
        AdminAt::Tcp(address) => {
            let bound = TcpListener::bind(address).map(drop);
            (bound, crate::admin::who_listens(*address, key))
        }
        AdminAt::Unix(path) => {
            let path_shown = path.display();
            let next = format!("ss -lxp src {path_shown} shows who has it; stop that, or give another `{key}`");
            (unix(path).await, next)
        }
    };
    match free {
        Ok(()) => Ok(format!("{at} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_running => {
            Ok(format!("{at}: the host that runs listens there"))
        }
        Err(error) => Err(Problem::new(format!("{at}: {error}"), next)),
    }
}

/// A socket that nothing serves is left by an ended host, and is free.
async fn unix(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::other("something else than a socket is there")),
        Ok(_) => match UnixStream::connect(Reachable::new(path)?.path()).await {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error),
        },
    }
}
