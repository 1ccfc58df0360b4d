//! Makes the host's folders. Only its start makes its state folder: if that is moved away while the host runs, a new
//! one at its path would take its place at the next start, which would begin empty.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{self, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::regular::folder_of;
use crate::replace::{Durable, sync_folder};

/// State is for the host's user alone.
const MODE: u32 = 0o700;

/// The name of the lock file in a state folder, which marks it as one.
pub const LOCK: &str = "lock";

/// The state folders that this process holds. Every writer below one depends on it, so it is not handed to each.
static HELD: Mutex<Vec<Place>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    state_dir: PathBuf,
    /// The device and inode of the lock file.
    lock: (u64, u64),
}

/// That this process holds a state folder, until it is dropped.
#[derive(Debug)]
pub struct Held(Place);

impl Held {
    /// From now on, nothing makes the state folder at this path. Its lock file is there.
    ///
    /// # Errors
    /// If the lock file can't be looked at.
    pub fn begin(state_dir: &Path) -> io::Result<Self> {
        let lock = lock_file(state_dir)?;
        let state_dir = state_dir.to_owned();
        let place = Place { state_dir, lock };
        held().push(place.clone());
        Ok(Self(place))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        held().retain(|place| *place != self.0);
    }
}

fn held() -> MutexGuard<'static, Vec<Place>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_file(state_dir: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(state_dir.join(LOCK))?;
    Ok((found.dev(), found.ino()))
}

/// That the state folder of this process is no longer at its path, in one line. `None` also for a path that is neither
/// a state folder of this process nor in one.
pub fn moved(path: &Path) -> Option<String> {
    let path = path::absolute(path).ok()?;
    let is_in = |place: &&Place| path::absolute(&place.state_dir).is_ok_and(|state_dir| path.starts_with(state_dir));
    let place = held().iter().find(is_in).cloned()?;
    let has_moved = lock_file(&place.state_dir).ok() != Some(place.lock);
    has_moved.then(|| {
        format!(
            "state folder {}: it was moved, removed or replaced while this host runs, so commands do not find the host, and another \
             one can start: stop process {}, and put the folder back",
            place.state_dir.display(),
            std::process::id()
        )
    })
}

/// Makes a folder and the missing ones above it, with mode 0700, but never the state folder of this process. If
/// `durable`, a crash of the machine does not undo it.
///
/// # Errors
/// If it can't be made, or if the state folder it is in has [`moved`].
pub fn make(folder: &Path, durable: Durable) -> io::Result<()> {
    if let Some(moved) = moved(folder) {
        return Err(io::Error::other(moved));
    }
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(ErrorKind::NotADirectory.into()),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let above = folder_of(folder);
    make(above, durable)?;
    match DirBuilder::new().mode(MODE).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match durable {
        Durable::Yes => sync_folder(above),
        Durable::No => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_makes_a_state_folder_that_was_moved_or_writes_to_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let (state_dir, elsewhere) = (dir.path().join("state"), dir.path().join("elsewhere"));
        fs::create_dir(&state_dir).unwrap();
        fs::write(state_dir.join(LOCK), "").unwrap();
        let held = Held::begin(&state_dir).unwrap();
        let inside = state_dir.join("one/two");
        make(&inside, Durable::Yes).unwrap();
        assert_eq!(moved(&state_dir), None);

        fs::rename(&state_dir, &elsewhere).unwrap();
        for folder in [&inside, &state_dir] {
            let says = make(folder, Durable::Yes).unwrap_err().to_string();
            assert!(says.contains("put the folder back"), "{says}");
        }
        assert!(!state_dir.exists());

        fs::create_dir_all(&inside).unwrap();
        fs::write(state_dir.join(LOCK), "").unwrap();
        assert!(make(&inside, Durable::No).is_err(), "another host has this one");

        fs::remove_dir_all(&state_dir).unwrap();
        fs::rename(&elsewhere, &state_dir).unwrap();
        make(&inside, Durable::No).unwrap();
        fs::remove_dir_all(&state_dir).unwrap();
        drop(held);
        make(&inside, Durable::No).unwrap();
    }
}
