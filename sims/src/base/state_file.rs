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

#[derive(Debug, thiserror::Error)]
#[error("state file `{}`: cannot be {action}", path.display())]
struct Failed {
    path: PathBuf,
    action: &'static str,
    source: io::Error,
}

fn failed(path: &Path, action: &'static str, source: io::Error) -> io::Error {
    let path = path.to_owned();
    io::Error::other(Failed { path, action, source })
}

/// The world in the file; `None` if there is no file.
pub(crate) fn load<W: DeserializeOwned>(path: Option<&Path>) -> io::Result<Option<W>> {
    let Some(path) = path else { return Ok(None) };
    let text = match regular::read(path, regular::LIST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, "read", error)),
    };
    // The server did not write this.
    let damaged = |reason: String| {
        let shown = path.display();
        let text = format!("state file `{shown}` is damaged: {reason}; repair it, or move it away to start anew");
        io::Error::other(text)
    };
    let stored: Stored<W> = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if stored.format != FORMAT {
        return Err(damaged(format!("format was {}, must be {FORMAT}", stored.format)));
    }
    Ok(Some(stored.world))
}

/// Replaces the file.
pub(crate) fn save<W: Serialize>(path: &Path, world: W) -> io::Result<()> {
    let text = serde_json::to_vec(&Stored { format: FORMAT, world }).map_err(io::Error::from);
    let saved = text.and_then(|text| replace_file(path, &text, Durable::No));
    saved.map_err(|error| failed(path, "written", error))
}
