//! Anchors in the operator's commands: what a store lacks, and how the operator accepts what remains of it.

use std::path::Path;

use serde::Serialize;

use super::anchor::{self, FORGOTTEN, Mark};
use super::disk::Real;
use super::lock;
use super::tools::{Kind, ToolError, kind_of, read_file, read_json};
use super::{Error, format, json_file, place};

/// Why there is no store: it never existed, or it is gone.
pub(super) fn not_there(path: &Path) -> Result<ToolError, Error> {
    Ok(match anchor::lost(anchor::look(path)?, None) {
        None => ToolError::Misused(format!("`{}`: there is no checkpoint", path.display())),
        Some(lost) => anchor::corrupt(path, &lost).into(),
    })
}

/// An epoch that no earlier file at `path` had, as far as the existing files can be read.
pub(super) fn next_epoch(path: &Path) -> Result<u64, Error> {
    let known = anchor::look(path).ok().flatten().map_or(0, |mark| mark.epoch);
    let present = match place::open_any(path)? {
        Some(_) => format::read_header(&place::read_bytes(path)?).map_or(0, |(_, epoch)| epoch),
        None => 0,
    };
    Ok(known.max(present) + 1)
}

/// A change that [`accept`] made.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// The state that the anchor knew; `None` if it knew none or can't be read.
    pub known: Option<Mark>,
    /// The state that exists and is accepted from now on. `None` if there is none: the next host begins with an empty
    /// store.
    pub found: Option<Mark>,
}

/// Accepts what exists as complete: a truncated store, an older copy, or none. Returns the change; `None` if nothing is
/// missing. `confirmed`: whether entries may be lost by this.
///
/// # Errors
/// If the store is in use or damaged in itself. A damaged store must first be moved away or restored. If entries are
/// lost, and that is not confirmed.
pub fn accept(path: &Path, confirmed: bool) -> Result<Option<Accepted>, ToolError> {
    let _lock = lock::take(path)?;
    let found = match kind_of(path)? {
        Some(Kind::File) => Some(read_file(path, None)?.mark()),
        Some(Kind::JsonFile) => read_json(path).map(|_| Some(json_file::MARK))?,
        None => None,
    };
    // A damaged anchor is replaced, too.
    let known = anchor::look(path);
    if known.as_ref().ok() == Some(&found) {
        return Ok(None);
    }
    if !confirmed && let Some(lost) = known.as_ref().ok().and_then(|known| anchor::lost(*known, found)) {
        let shown = path.display();
        return Err(ToolError::Misused(format!(
            "{shown}: {lost}; {FORGOTTEN}; to go on: `trueup checkpoint accept {shown} --yes`"
        )));
    }
    anchor::set(&Real, path, found)?;
    Ok(Some(Accepted {
        known: known.unwrap_or_default(),
        found,
    }))
}
