//! One host at a time works with a state folder: two would write one recording.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use trueup_journal::regular;

use super::setup::SetupError;

/// The number of a process is no longer.
const PID_BYTES_MAX: u64 = 32;

/// Holds the state folder until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the folder, which is created where it is missing.
    ///
    /// # Errors
    /// One line: who has it, or why it can't be used.
    pub fn take(state_dir: &Path) -> Result<Self, SetupError> {
        Self::try_take(state_dir)?.map_err(|taken| SetupError::Failed(taken.to_string()))
    }

    /// The same; where another process has it: which.
    ///
    /// # Errors
    /// One line: why it can't be used.
    pub fn try_take(state_dir: &Path) -> Result<Result<Self, Taken>, SetupError> {
        let failed =
            |error: &dyn fmt::Display| SetupError::Failed(format!("state folder {}: {error}", state_dir.display()));
        if state_dir.exists() && !state_dir.is_dir() {
            let what = "is no folder; name another one in `state_dir`";
            return Err(SetupError::Misused(format!(
                "state folder {} {what}",
                state_dir.display()
            )));
        }
        std::fs::create_dir_all(state_dir).map_err(|error| failed(&error))?;
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        let mut file = regular::open_own(&mut options, &state_dir.join("lock")).map_err(|error| failed(&error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // It is only shown: a disk that is full is no reason not to go on.
                let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                Ok(Ok(Self { _file: file }))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // Of an older trueup it is empty.
                let _ = file.take(PID_BYTES_MAX).read_to_string(&mut text);
                Ok(Err(Taken {
                    state_dir: state_dir.to_owned(),
                    pid: text.trim().parse().ok(),
                }))
            }
            Err(error) => Err(failed(&error)),
        }
    }
}

/// Another process works with the state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    state_dir: PathBuf,
    pid: Option<u32>,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        write!(
            f,
            "state folder {}: another trueup runs with it{pid}; stop that one, or give this one a `state_dir` of its own",
            self.state_dir.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_taken_names_the_process_that_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let lock = StateLock::take(dir.path()).unwrap();
        let pid = std::process::id();
        let said = StateLock::take(dir.path()).unwrap_err().to_string();
        assert!(
            said.contains(&format!("another trueup runs with it (process {pid})")),
            "{said}"
        );
        drop(lock);
        assert!(StateLock::take(dir.path()).is_ok());
    }
}
