//! Anchors in the operator's commands: what a store lacks, and how the operator accepts what remains of it.

use std::path::Path;

use serde::Serialize;

use super::anchor::{self, Mark};
use super::disk::Real;
use super::lock::Lock;
use super::tools::{Kind, ToolError, kind_of, read_bytes, read_file, read_json};
use super::{Error, database, format, json_file, place};

/// Why there is no store: it never existed, or it is gone.
pub(super) fn not_there(path: &Path) -> Result<ToolError, Error> {
    let shown = path.display();
    let known = anchors(path)?.into_iter().next();
    Ok(match anchor::lost(known.map(|(_, mark)| mark), None) {
        None => ToolError::Misused(format!("`{shown}`: there is no checkpoint")),
        Some(lost) => Error::Corrupt(format!("{shown}: {lost}; {}", anchor::way_out(path))).into(),
    })
}

/// An epoch that no earlier file at `path` had, as far as the existing files can be read.
pub(super) fn next_epoch(path: &Path) -> Result<u64, Error> {
    let known = anchor::look(path).ok().flatten().map_or(0, |mark| mark.epoch);
    let present = match place::open_any(path)? {
        Some(_) => format::read_header(&read_bytes(path)?).map_or(0, |(_, epoch)| epoch),
        None => 0,
    };
    Ok(known.max(present) + 1)
}

/// The anchors of the store at `path`, the store's own first. Those of a database belong to one instance each.
pub(super) fn anchors(path: &Path) -> Result<Vec<(Option<String>, Mark)>, Error> {
    let own = anchor::look(path)?.map(|mark| (None, mark));
    let mut all: Vec<_> = own.into_iter().collect();
    for instance in anchored_instances(path)? {
        let mark = anchor::look(&database::anchored(path, &instance))?;
        all.extend(mark.map(|mark| (Some(instance), mark)));
    }
    Ok(all)
}

/// The store's own anchor, if it has one.
pub(super) fn own(anchors: &[(Option<String>, Mark)]) -> Option<Mark> {
    let own = anchors.iter().find(|(instance, _)| instance.is_none());
    own.map(|(_, mark)| *mark)
}

/// The instances of a database that have an anchor beside it. Stores whose name only has the same prefix do not count.
fn anchored_instances(path: &Path) -> Result<Vec<String>, Error> {
    let failed = |error| place::failed(path, "looking for anchors of", &error);
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(place::folder(path)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let other = entry.map_err(failed)?.file_name();
        let rest = other
            .to_str()
            .and_then(|other| other.strip_prefix(name)?.strip_prefix('.'));
        let instance = rest.and_then(|rest| rest.strip_suffix(".anchor"));
        found.extend(
            instance
                .filter(|instance| !database::anchored(path, instance).exists())
                .map(str::to_owned),
        );
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns which of the known rows a database lacks.
pub(super) fn lost_rows(
    path: &Path,
    database: &redb::Database,
    known: &[(Option<String>, Mark)],
) -> Result<Option<String>, Error> {
    for (instance, mark) in known {
        let Some(instance) = instance else { continue };
        let found = database::mark_of(path, database, instance)?;
        if let Some(lost) = anchor::lost(Some(*mark), found) {
            return Ok(Some(format!("`{instance}`: {lost}; {}", anchor::way_out(path))));
        }
    }
    Ok(None)
}

/// A change that [`accept`] made.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// The instance that owns the rows, in a database.
    pub instance: Option<String>,
    /// The state that the anchor knew; `None` if it knew none or can't be read.
    pub known: Option<Mark>,
    /// The state that exists and is accepted from now on. `None` if there is none: the next host begins with an empty
    /// store.
    pub found: Option<Mark>,
}

/// Accepts what exists as complete: a truncated store, an older copy, or none. Returns the changes per instance.
///
/// # Errors
/// If the store is in use or damaged in itself. A damaged store must first be moved away or restored.
pub fn accept(path: &Path) -> Result<Vec<Accepted>, ToolError> {
    let _lock = Lock::take(path)?;
    let mut changed = Vec::new();
    let mut accept = |at: &Path, instance: Option<String>, found| {
        // A damaged anchor is replaced, too.
        let known = anchor::look(at);
        if known.as_ref().ok() != Some(&found) {
            anchor::set(&Real, at, found)?;
            changed.push(Accepted {
                instance,
                known: known.unwrap_or_default(),
                found,
            });
        }
        Ok::<(), Error>(())
    };
    let kind = kind_of(path)?;
    let own = match kind {
        Some(Kind::File) => Some(read_file(path, None)?.mark),
        Some(Kind::JsonFile) => read_json(path).map(|_| Some(json_file::MARK))?,
        Some(Kind::Database) | None => None,
    };
    accept(path, None, own)?;
    if matches!(kind, Some(Kind::Database) | None) {
        let snapshot = kind.map(|_| database::snapshot(path)).transpose()?;
        for instance in anchored_instances(path)? {
            let found = match &snapshot {
                Some(snapshot) => database::mark_of(path, snapshot, &instance)?,
                None => None,
            };
            accept(&database::anchored(path, &instance), Some(instance), found)?;
        }
    }
    Ok(changed)
}
