//! One host at a time works with a state folder: two would write one recording.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use trueup_journal::regular;

use super::setup::SetupError;

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
        let failed = |error: &dyn std::fmt::Display| {
            SetupError::Failed(format!("state folder {}: {error}", state_dir.display()))
        };
        if state_dir.exists() && !state_dir.is_dir() {
            let what = "is no folder; name another one in `state_dir`";
            return Err(SetupError::Misused(format!(
                "state folder {} {what}",
                state_dir.display()
            )));
        }
        std::fs::create_dir_all(state_dir).map_err(|error| failed(&error))?;
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        let file = regular::open_own(&mut options, &state_dir.join("lock"));
        let file = file.map_err(|error| failed(&error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(failed(
                &"another trueup runs with it; stop that one, or give this one a `state_dir` of its own",
            )),
            Err(error) => Err(failed(&error)),
        }
    }
}
