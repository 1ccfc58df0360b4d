//! State files: reading and writing a world as JSON, and what can be wrong with a file.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trueup_base::regular;

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
    /// The server did not write this. `line` counts from 1; `None` in a file that is not read by lines.
    pub(crate) fn damaged(path: &Path, line: Option<usize>, reason: impl std::fmt::Display) -> Self {
        let place = line.map_or_else(String::new, |line| format!(": line {line}"));
        Self {
            path: path.to_owned(),
            problem: format!("{place} is damaged: {reason}; repair it, or move it away to start anew"),
            source: None,
        }
    }

    /// The server can't write the file.
    pub(crate) fn write(path: &Path, source: impl Into<io::Error>) -> Self {
        Self {
            path: path.to_owned(),
            problem: ": cannot be written".to_owned(),
            source: Some(source.into()),
        }
    }
}

/// The file's bytes; `None` if there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, StateFileError> {
    match regular::read(path, regular::LIST) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StateFileError {
            path: path.to_owned(),
            problem: ": cannot be read".to_owned(),
            source: Some(error),
        }),
    }
}

/// The world in a text from this file.
pub(crate) fn parse<W: DeserializeOwned>(path: &Path, line: Option<usize>, text: &[u8]) -> Result<W, StateFileError> {
    let damaged = |reason: String| StateFileError::damaged(path, line, reason);
    let stored: Stored<W> = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    if stored.format != FORMAT {
        return Err(damaged(format!("format was {}, must be {FORMAT}", stored.format)));
    }
    Ok(stored.world)
}

/// A world as text.
pub(crate) fn text<W: Serialize>(world: W) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Stored { format: FORMAT, world })
}
