//! State files: a world as JSON, so that no acknowledged effect is lost when the process is killed.
//!
//! Each request that changes something replaces the whole file: a simulated world is small. The operating system has
//! the file before the server answers. The file is not synced to disk: a simulation outlives its process, not its
//! machine.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trueup_base::regular;
use trueup_base::replace::{Durable, replace_file};

/// The only format of both servers' files.
const FORMAT: u32 = 1;

/// A world with the format that it is written in.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored<W> {
    format: u32,
    world: W,
}

/// Why a state file could not be used.
#[derive(Debug, thiserror::Error)]
#[error("state file `{}`{problem}", path.display())]
pub(crate) struct StateFileError {
    path: PathBuf,
    problem: String,
    source: Option<io::Error>,
}

impl StateFileError {
    /// The server did not write this.
    fn damaged(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self {
            path: path.to_owned(),
            problem: format!(" is damaged: {reason}; repair it, or move it away to start anew"),
            source: None,
        }
    }

    fn failed(path: &Path, problem: &str, source: io::Error) -> Self {
        Self {
            path: path.to_owned(),
            problem: problem.to_owned(),
            source: Some(source),
        }
    }
}

/// The world in the file; `None` if there is no file.
pub(crate) fn load<W: DeserializeOwned>(path: &Path) -> Result<Option<W>, StateFileError> {
    let text = match regular::read(path, regular::LIST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StateFileError::failed(path, ": cannot be read", error)),
    };
    let stored: Stored<W> = serde_json::from_slice(&text).map_err(|error| StateFileError::damaged(path, error))?;
    if stored.format != FORMAT {
        let reason = format!("format was {}, must be {FORMAT}", stored.format);
        return Err(StateFileError::damaged(path, reason));
    }
    Ok(Some(stored.world))
}

/// Replaces the file.
pub(crate) fn save<W: Serialize>(path: &Path, world: W) -> Result<(), StateFileError> {
    let text = serde_json::to_vec(&Stored { format: FORMAT, world });
    let saved = text
        .map_err(io::Error::from)
        .and_then(|text| replace_file(path, &text, Durable::No));
    saved.map_err(|error| StateFileError::failed(path, ": cannot be written", error))
}
