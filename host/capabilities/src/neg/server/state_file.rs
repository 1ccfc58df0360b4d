//! Saves the world in a file, so that no acknowledged effect is lost when the process is killed.
//!
//! The server replaces the whole file after each request that changed something, since the world is small. The file
//! reaches the operating system before the acknowledgement. It is not forced to the disk, since a simulation survives
//! its process, not its machine.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trueup_journal::{Durable, replace_file};

use super::world::World;
use trueup_journal::regular;

/// The only format.
const FORMAT: u32 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u32,
    world: World,
}

#[derive(Serialize)]
struct Storing<'a> {
    format: u32,
    world: &'a World,
}

/// Why a state file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The file exists but can't be read.
    #[error("state file `{}`: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is not what a simulated Compute Engine wrote.
    #[error("state file `{}` is damaged: {reason}; repair it, or move it away to start anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// It can't be written.
    #[error("state file `{}`: cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The world in the file; an empty one if there is no file.
pub(super) fn load(path: &Path) -> Result<World, StateFileError> {
    let text = match regular::read(path, regular::LIST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(World::default()),
        Err(source) => {
            return Err(StateFileError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let damaged = |reason| StateFileError::Damaged {
        path: path.to_owned(),
        reason,
    };
    let stored: Stored = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if stored.format != FORMAT {
        return Err(damaged(format!("format was {}, must be {FORMAT}", stored.format)));
    }
    Ok(stored.world)
}

/// Replaces the file.
pub(super) fn save(path: &Path, world: &World) -> Result<(), StateFileError> {
    let failed = |source| StateFileError::Write {
        path: path.to_owned(),
        source,
    };
    let stored = Storing { format: FORMAT, world };
    let text = serde_json::to_vec(&stored).map_err(|error| failed(error.into()))?;
    replace_file(path, &text, Durable::No).map_err(failed)
}
