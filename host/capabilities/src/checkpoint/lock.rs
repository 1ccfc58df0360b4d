//! One host at a time: an exclusive `flock` on `PATH.lock`, held as long as the store is open.
//!
//! The lock file is never deleted. Otherwise a process that waits for the deleted file would hold a lock that no other
//! process sees.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use trueup_base::file_lock::{FileLock, NotLocked, written_pid};

use super::place;

/// Why a store could not be opened. One line.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another store of this process, has it open.
    #[error(
        "checkpoint `{}`: in use by {}; stop that one first, or choose another path",
        path.display(),
        holder.map_or_else(|| "another process".to_owned(), |pid| format!("the process with pid {pid}"))
    )]
    Locked {
        /// The store, not its lock file.
        path: PathBuf,
        /// The process that has it; `None` if it had not yet written its pid.
        holder: Option<u32>,
    },
    /// Its folder or its lock file can't be created or opened.
    #[error("checkpoint `{}`: {what} `{}`: {source}", path.display(), place.display())]
    Place {
        /// The store.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The path of that operation.
        place: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// Creates the folder if it is missing, and takes the lock of the store at `path`.
pub(super) fn take(path: &Path) -> Result<FileLock, OpenError> {
    let failed = |what, place: &Path| {
        let place = place.to_owned();
        move |source| OpenError::Place {
            path: path.to_owned(),
            what,
            place,
            source,
        }
    };
    let folder = place::folder_of(path);
    place::create_folder(folder).map_err(failed("creating the folder", folder))?;
    let beside = place::beside(path, ".lock");
    let file = place::open_lock(&beside).map_err(failed("opening the lock file", &beside))?;
    FileLock::take(file).map_err(|error| match error {
        NotLocked::Taken(holder) => OpenError::Locked {
            path: path.to_owned(),
            holder,
        },
        NotLocked::Failed(source) => failed("locking", &beside)(source),
    })
}

/// Returns the process that currently holds the lock of the store at `path`, for read-only callers. It does not take
/// the lock even briefly, since that would turn away a host that starts at that moment. It reads `/proc/locks`
/// (proc(5)), the only source; without it, no holder is found.
pub(super) fn holder(path: &Path) -> Option<Holder> {
    use std::os::unix::fs::MetadataExt as _;
    let beside = place::beside(path, ".lock");
    let mut file = File::open(&beside).ok()?;
    let meta = file.metadata().ok()?;
    let device = meta.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let wanted = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let is_held = locks.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.any(|word| word == "FLOCK") && words.any(|word| word == wanted)
    });
    is_held.then(|| Holder {
        pid: written_pid(&mut file),
    })
}

/// The holder of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The pid as the holder wrote it; `None` before that.
    pub pid: Option<u32>,
}
