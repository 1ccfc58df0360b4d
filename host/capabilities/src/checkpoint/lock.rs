//! One host at a time: an exclusive `flock` on `PATH.lock`, held as long as the store is open.
//!
//! The lock file is never deleted. Otherwise a process that waits for the deleted file would hold a lock that no other
//! process sees.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use trueup_base::file_lock::{FileLock, NotLocked, written_pid};
use trueup_base::folder;
use trueup_base::replace::Durable;

use super::place;

/// Why a store could not be opened. One line.
#[derive(Debug, thiserror::Error)]
#[error("checkpoint `{}`: {reason}", path.display())]
pub struct OpenError {
    /// The store, not its lock file.
    path: PathBuf,
    reason: String,
}

/// Creates the folder if it is missing, and takes the lock of the store at `path`.
pub(super) fn take(path: &Path) -> Result<FileLock, OpenError> {
    take_lock(path).map_err(|reason| OpenError {
        path: path.to_owned(),
        reason,
    })
}

fn take_lock(path: &Path) -> Result<FileLock, String> {
    let failed = |what: &str, place: &Path, error: &io::Error| format!("{what} `{}`: {error}", place.display());
    let folder = place::folder_of(path);
    folder::make(folder, Durable::Yes).map_err(|error| failed("creating the folder", folder, &error))?;
    let beside = place::beside(path, ".lock");
    let file = place::open_lock(&beside).map_err(|error| failed("opening the lock file", &beside, &error))?;
    FileLock::take(file).map_err(|error| match error {
        NotLocked::Taken(holder) => {
            let holder = holder.map(|pid| format!("the process with pid {pid}"));
            let holder = holder.unwrap_or_else(|| "another process".to_owned());
            format!("in use by {holder}; stop that one first, or choose another path")
        }
        NotLocked::Failed(error) => failed("locking", &beside, &error),
    })
}

/// The id of the process that currently holds the lock of the store at `path`, as it wrote it, for read-only callers.
/// This does not take the lock even briefly, since that would turn away a host that starts at that moment. It reads
/// `/proc/locks` (proc(5)), the only source; without it, no holder is found.
pub(super) fn holder(path: &Path) -> Option<Option<u32>> {
    use std::os::unix::fs::MetadataExt as _;
    let beside = place::beside(path, ".lock");
    let mut file = File::open(&beside).ok()?;
    let meta = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let is_held = locks.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.any(|word| word == "FLOCK") && words.any(|word| word == wanted)
    });
    is_held.then(|| written_pid(&mut file))
}
