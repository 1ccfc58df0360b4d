//! The minimum state of a store, in a small file beside it: `PATH.anchor`.
//!
//! A store that was cut at the end of a record, deleted, or replaced by an older copy looks whole by itself. The anchor
//! shows that there was more.
//!
//! ```text
//! two lines of 512 bytes: trueup-anchor 1 epoch EPOCH records RECORDS crc CRC-32C of the text before " crc"
//! ```
//! The host raises the anchor after a change is durable and before it answers, so the anchor is never ahead of the
//! store, whenever the host or the machine ends. A raise overwrites the lower of the two lines in place without a sync:
//! it costs one write into the system's cache. After power loss the anchor may be older than the store by what the
//! system had not written back. It then detects less, and a whole store is still whole. If the host ends in any other
//! way, the anchor loses nothing.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use trueup_base::replace;

use super::place::Disk;
use super::{Error, format, generations, place};

/// The position of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Mark {
    /// Grows by at least one with each checkpoint; 0 in files of the first format and in JSON files.
    pub epoch: u64,
    /// The number of entries after that checkpoint.
    pub records: u64,
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "checkpoint {} with {} entries", self.epoch, self.records)
    }
}

/// Each line fills a sector of its own, so an interrupted write can't hit both.
const LINE_BYTES: usize = 512;

/// The anchor of a store, and its last known value.
#[derive(Debug)]
pub(super) struct Anchor {
    path: PathBuf,
    open: Option<Open>,
    /// Whether the last write failed. The warning is logged once, not at every change.
    has_failed: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    mark: Mark,
    /// Which line holds the value.
    line: u64,
}

impl Anchor {
    /// The anchor of the store at `path`. Reads nothing yet.
    pub(super) fn of(path: &Path) -> Self {
        Self {
            path: path_of(path),
            open: None,
            has_failed: false,
        }
    }

    /// Reads the anchor again. `None` if it does not exist: the store never existed, or an earlier host wrote it.
    pub(super) fn read(&mut self) -> Result<Option<Mark>, Error> {
        self.open = None;
        let Some(mut file) = place::open_ours(&self.path, true)? else {
            return Ok(None);
        };
        let (mark, line) = parse(&self.path, &mut file)?;
        self.open = Some(Open { file, mark, line });
        Ok(Some(mark))
    }

    /// The value when it was last read or raised.
    pub(super) fn mark(&self) -> Option<Mark> {
        self.open.as_ref().map(|open| open.mark)
    }

    /// Raises the anchor: the store has durably reached this position. If the write fails, the anchor stays lower and
    /// detects less.
    pub(super) fn raise(&mut self, disk: &dyn Disk, mark: Mark) {
        let raised = match &mut self.open {
            Some(open) if mark <= open.mark => Ok(()),
            Some(open) => {
                let line = 1 - open.line;
                let written = disk.write_at(&open.file, &text(mark), line * LINE_BYTES as u64);
                written.map(|()| (open.mark, open.line) = (mark, line))
            }
            none => write(disk, &self.path, mark).map(|file| *none = Some(Open { file, mark, line: 0 })),
        };
        if let Err(error) = &raised
            && !self.has_failed
        {
            let path = self.path.display();
            tracing::warn!("checkpoint: {path}: writing: {error}; a loss of newer entries is not detected meanwhile");
        }
        self.has_failed = raised.is_err();
    }
}

/// The anchor's own path.
fn path_of(path: &Path) -> PathBuf {
    place::beside(path, ".anchor")
}

/// What the anchor of the store at `path` says, for read-only callers.
pub(super) fn look(path: &Path) -> Result<Option<Mark>, Error> {
    let anchor = path_of(path);
    let parsed = place::open_any(&anchor)?.map(|mut file| parse(&anchor, &mut file));
    Ok(parsed.transpose()?.map(|(mark, _)| mark))
}

/// Sets the anchor for an operator's command that holds the lock, to a lower value too. `None` means that there is no
/// store.
pub(super) fn set(disk: &dyn Disk, path: &Path, mark: Option<Mark>) -> Result<(), Error> {
    let anchor = path_of(path);
    let done = match mark {
        Some(mark) => write(disk, &anchor, mark).map(drop),
        None => replace::remove(&anchor).and_then(|()| disk.sync_folder(place::folder_of(&anchor))),
    };
    done.map_err(|error| place::failed(&anchor, "writing", &error))
}

/// Writes a whole new file, synced, in one step.
fn write(disk: &dyn Disk, anchor: &Path, mark: Mark) -> io::Result<File> {
    let new = place::beside(anchor, ".tmp");
    let line = text(mark);
    let file = generations::write_new(disk, &new, &[&line, &line])?;
    disk.rename(&new, anchor)?;
    disk.sync_folder(place::folder_of(anchor))?;
    Ok(file)
}

/// Why the store found is incomplete; `None` if it may be complete.
pub(super) fn lost(known: Option<Mark>, found: Option<Mark>) -> Option<String> {
    let known = known?;
    match found {
        None => Some(format!("it is gone; it was at {known}")),
        Some(found) if found < known => Some(format!(
            "entries that were answered are lost: it ends at {found}, and was at {known}"
        )),
        Some(_) => None,
    }
}

/// What an operator must know before going on without a part of a store.
pub(super) const FORGOTTEN: &str = "pods keep the addresses that missing entries gave them, and others may get the same; the safe \
                                    way: docs/operators.md, \"The checkpoint is corrupt\"";

/// The commands that an operator runs if the host can't continue with a store: only those that succeed with the files
/// that are there. `accept` refuses a file that is damaged in itself.
fn way_out(path: &Path) -> String {
    let shown = path.display();
    let content = place::read_bytes(path);
    let is_foreign = content.as_ref().is_ok_and(|bytes| !bytes.starts_with(format::MAGIC));
    if is_foreign && matches!(look(path), Ok(None)) {
        return "it is no checkpoint, and has no anchor beside it: give the path of one".to_owned();
    }
    let newest = generations::list(path).unwrap_or_default().first().copied();
    let restore = newest.map_or_else(String::new, |newest| {
        format!("`trueup checkpoint restore {shown} --generation {newest}` brings an earlier one back, or ")
    });
    let accept = format!("`trueup checkpoint accept {shown}` goes on with");
    let accept = match content.map(|bytes| format::scan(&bytes, None)) {
        Ok(Ok(_)) => format!("{accept} what is there"),
        Ok(Err(_)) => format!("`mv {shown} {shown}.damaged`, then {accept} an empty store"),
        Err(_) => format!("{accept} an empty store"),
    };
    format!("nothing is written to it; with the host stopped, {restore}{accept}; {FORGOTTEN}")
}

/// The error of a store with this damage.
pub(super) fn corrupt(path: &Path, damage: &str) -> Error {
    Error::Corrupt(format!("{}: {damage}; {}", path.display(), way_out(path)))
}

fn text(mark: Mark) -> Vec<u8> {
    let Mark { epoch, records } = mark;
    let facts = format!("trueup-anchor 1 epoch {epoch} records {records}");
    let line = format!("{facts} crc {:08x}", crc32c::crc32c(facts.as_bytes()));
    format!("{line:<width$}\n", width = LINE_BYTES - 1).into_bytes()
}

/// The higher of the two lines, and its index.
fn parse(anchor: &Path, file: &mut File) -> Result<(Mark, u64), Error> {
    let mut bytes = Vec::new();
    let read = file.take(2 * LINE_BYTES as u64).read_to_end(&mut bytes);
    read.map_err(|error| place::failed(anchor, "reading", &error))?;
    let lines = (0..).zip(bytes.chunks_exact(LINE_BYTES));
    let known = lines.filter_map(|(number, line)| Some((mark_of(line)?, number))).max();
    known.ok_or_else(|| {
        let path = anchor.display();
        Error::Corrupt(format!(
            "{path}: neither of its lines is right: whether entries of the checkpoint are lost is not known; with the host \
             stopped, `trueup checkpoint verify` checks what is there, and `trueup checkpoint accept` goes on with it"
        ))
    })
}

fn mark_of(line: &[u8]) -> Option<Mark> {
    let words: Vec<&str> = std::str::from_utf8(line).ok()?.split_ascii_whitespace().collect();
    let [_, _, _, epoch, _, records, _, _] = words.as_slice() else {
        return None;
    };
    let (epoch, records) = (epoch.parse().ok()?, records.parse().ok()?);
    let mark = Mark { epoch, records };
    (text(mark) == line).then_some(mark)
}

#[cfg(test)]
mod tests {
    use super::super::place::Real;
    use super::*;

    fn mark(epoch: u64, records: u64) -> Mark {
        Mark { epoch, records }
    }

    #[test]
    fn the_higher_line_counts_and_a_torn_one_leaves_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ipam");
        let mut anchor = Anchor::of(&path);
        assert_eq!(anchor.read().unwrap(), None);
        for next in [mark(1, 0), mark(1, 9), mark(1, 10), mark(2, 0)] {
            anchor.raise(&Real, next);
            assert_eq!(look(&path).unwrap(), Some(next));
            anchor.raise(&Real, mark(1, 0));
            assert_eq!(look(&path).unwrap(), Some(next), "an anchor never goes back");
        }
        let beside = path_of(&path);
        let mut bytes = std::fs::read(&beside).unwrap();
        assert_eq!(bytes.len(), 2 * LINE_BYTES);
        bytes[LINE_BYTES + 23] ^= 1;
        std::fs::write(&beside, &bytes).unwrap();
        assert_eq!(anchor.read().unwrap(), Some(mark(1, 10)));
        anchor.raise(&Real, mark(2, 0));
        assert_eq!(look(&path).unwrap(), Some(mark(2, 0)));
        for wrong in [&b""[..], &bytes[..100], &[b' '; 2 * LINE_BYTES][..]] {
            std::fs::write(&beside, wrong).unwrap();
            assert_eq!(anchor.read().unwrap_err().kind(), "corrupt");
        }
        set(&Real, &path, None).unwrap();
        assert_eq!(anchor.read().unwrap(), None);
    }

    #[test]
    fn what_is_less_than_the_anchor_says_is_lost() {
        assert_eq!(lost(None, None), None);
        assert_eq!(lost(None, Some(mark(1, 0))), None);
        assert_eq!(lost(Some(mark(2, 3)), Some(mark(2, 3))), None);
        assert_eq!(lost(Some(mark(2, 3)), Some(mark(3, 0))), None);
        assert_eq!(
            lost(Some(mark(2, 3)), None).unwrap(),
            "it is gone; it was at checkpoint 2 with 3 entries"
        );
        for less in [mark(2, 2), mark(1, 9)] {
            assert!(lost(Some(mark(2, 3)), Some(less)).is_some());
        }
    }
}
