//! Replaces a store's file in one step, and keeps the replaced files: `PATH.1` (the newest), `PATH.2`, ...
//!
//! ```text
//! PATH.tmp written, synced -> PATH.1 to PATH.2, ... -> PATH also PATH.1 -> PATH.tmp over PATH -> folder synced
//! ```
//! `PATH` is whole at every moment, either the old file or the new one, and no byte of it is copied. An interruption
//! leaves at most a gap in the numbers, or a `PATH.1` that is still the file at `PATH`; the next replacement corrects
//! both.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use trueup_base::replace;

use super::place::Disk;
use super::{Error, place};

/// How many replaced files to keep.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keep {
    /// Keep this many; remove the oldest above that.
    Newest(u32),
    /// For an operator's command: remove none.
    All,
}

/// The highest generation that the host looks for. An operator with more must tidy the folder first.
const GENERATION_MAX: u32 = 10_000;

/// The path of a generation, 1 the newest.
pub(super) fn path_of(path: &Path, generation: u32) -> PathBuf {
    place::beside(path, &format!(".{generation}"))
}

/// The existing generations, ascending: the newest first.
pub(super) fn list(path: &Path) -> io::Result<Vec<u32>> {
    let Some(name) = path.file_name() else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(place::folder_of(path))? {
        let other = entry?.file_name();
        let rest = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let number = rest.and_then(|rest| rest.strip_prefix(b"."));
        let number = number.and_then(|number| std::str::from_utf8(number).ok());
        // `PATH.01` and `PATH.+1` are foreign files.
        let parsed = number.and_then(|text| text.parse().ok().filter(|number: &u32| number.to_string() == text));
        found.extend(parsed.filter(|number| *number > 0));
    }
    found.sort_unstable();
    Ok(found)
}

/// Writes the pieces as one file to `path`; the old file becomes generation 1. Returns the new file, open for reading
/// and writing, and an error if it is at `path` but may not survive a crash there.
pub(super) fn replace(
    disk: &dyn Disk,
    path: &Path,
    keep: Keep,
    pieces: &[&[u8]],
) -> Result<(File, Option<Error>), Error> {
    let new = place::beside(path, ".tmp");
    let failed = |what: &str, error: &io::Error| {
        // The new file is useless. If it can't be removed, the next attempt tries again.
        let _ = fs::remove_file(&new);
        place::failed(path, what, error)
    };
    let file = write_new(disk, &new, pieces).map_err(|error| failed("writing the new checkpoint", &error))?;
    if let Err(error) = retain(disk, path, keep) {
        if let Keep::All = keep {
            return Err(failed("keeping what is to be replaced", &error));
        }
        // The checkpoint itself matters more than the copy of an older one.
        tracing::warn!(path = %path.display(), "checkpoint: the replaced one could not be kept: {error}");
    }
    let renamed = disk.rename(&new, path);
    renamed.map_err(|error| failed("putting the new checkpoint in place", &error))?;
    let synced = disk.sync_folder(place::folder_of(path));
    let unsure = synced.map_err(|error| place::failed(path, "syncing the folder", &error));
    Ok((file, unsure.err()))
}

/// As [`replace()`], if what is at `path` may be replaced. Fails also if the new file may not survive a crash.
pub(super) fn put(disk: &dyn Disk, path: &Path, keep: Keep, pieces: &[&[u8]]) -> Result<(), Error> {
    place::look(path)?;
    let (_, unsure) = replace(disk, path, keep, pieces)?;
    unsure.map_or(Ok(()), Err)
}

/// Writes a synced file with these bytes, replacing one that an earlier attempt left.
pub(super) fn write_new(disk: &dyn Disk, new: &Path, pieces: &[&[u8]]) -> io::Result<File> {
    replace::remove(new)?;
    let file = place::create_new(new)?;
    let mut end = 0;
    for piece in pieces {
        disk.write_at(&file, piece, end)?;
        end += piece.len() as u64;
    }
    disk.sync_all(&file)?;
    Ok(file)
}

/// Gives the file at `path` a second name, `PATH.1`, and shifts the existing generations by one.
fn retain(disk: &dyn Disk, path: &Path, keep: Keep) -> io::Result<()> {
    let most = match keep {
        Keep::Newest(0) => return Ok(()),
        Keep::Newest(count) => count.min(GENERATION_MAX),
        Keep::All => GENERATION_MAX,
    };
    let present = place::identity_at(path)?;
    let first = path_of(path, 1);
    if present.is_none() || place::identity_at(&first)? == present {
        return Ok(());
    }
    let mut free = None;
    for number in 1..=most {
        if place::identity_at(&path_of(path, number))?.is_none() {
            free = Some(number);
            break;
        }
    }
    if let (None, Keep::All) = (free, keep) {
        let text = format!("there are {GENERATION_MAX} generations already");
        return Err(io::Error::other(text));
    }
    let last = free.unwrap_or(most);
    if last == 1 && free.is_none() {
        fs::remove_file(&first)?;
    }
    for number in (1..last).rev() {
        disk.rename(&path_of(path, number), &path_of(path, number + 1))?;
    }
    disk.link(path, &first)
}
