//! An exclusive `flock(2)` on a file that also names its holder.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};

/// The maximum length of a process id and a newline, in bytes.
const PID_BYTES_MAX: u64 = 32;

/// Holds the lock until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct FileLock(File);

/// Why a file is not locked.
#[derive(Debug)]
pub enum NotLocked {
    /// Another open file holds the lock, with the process id that its holder wrote; `None` if it wrote none.
    Taken(Option<u32>),
    /// Locking failed.
    Failed(io::Error),
}

impl FileLock {
    /// Locks a file that is open for reading and writing, and writes the id of this process into it. Does not wait.
    ///
    /// # Errors
    /// If another open file holds the lock, or if locking fails.
    pub fn take(mut file: File) -> Result<Self, NotLocked> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NotLocked::Taken(written_pid(&mut file))),
            Err(TryLockError::Error(error)) => return Err(NotLocked::Failed(error)),
        }
        // The process id is only shown. The host goes on even if the disk is full.
        let _ = write_pid(&mut file);
        Ok(Self(file))
    }

    /// The process id that the holder wrote, if another open file holds the lock. Writes nothing, and holds the lock
    /// itself only for a moment, shared with others that look.
    ///
    /// # Errors
    /// If that can't be seen.
    pub fn held(mut file: File) -> io::Result<Option<Option<u32>>> {
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(written_pid(&mut file))),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A child process that is just starting has the file open until it executes another program, so closing alone
        // would leave the lock with it. If unlocking fails, only the close releases it.
        let _ = self.0.unlock();
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// The process id that the last holder wrote into the file; `None` if it wrote none.
pub fn written_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_file_names_its_holder_until_the_lock_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let mut options = File::options();
            options.create(true).truncate(false).read(true).write(true);
            options.open(dir.path().join("lock")).unwrap()
        };
        let lock = FileLock::take(open()).unwrap();
        // As a child process that has not yet executed its program.
        let _in_a_child = lock.0.try_clone().unwrap();
        let holder = match FileLock::take(open()) {
            Err(NotLocked::Taken(holder)) => holder,
            other => panic!("{other:?}"),
        };
        assert_eq!(holder, Some(std::process::id()));
        drop(lock);
        FileLock::take(open()).unwrap();
    }
}
