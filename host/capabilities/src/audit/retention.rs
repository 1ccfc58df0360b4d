//! Removes the oldest files of an audit log in a way that `verify` can tell from a truncated log.
//!
//! ```text
//! 0.jsonl  5120.jsonl  10240.jsonl                                 above a limit
//! 0.jsonl  5120.jsonl  10240.jsonl + "lines 0 to 5119", its hash   a line says so: chained, on the disk
//!          5120.jsonl  10240.jsonl                                 then the files go, oldest first
//! ```
//!
//! A log that does not begin with line 0 must hold such a line, and its first line must follow the last removed one.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::replace::Durable;

use super::line::{Kind, Line, line_of};
use super::verify::segments;
use super::writer::sync_folder;
use super::{Audit, AuditError, failed};
use crate::Identity;

/// The `call` of a line that reports removed lines.
const CALL: &str = "audit.drop";

impl Audit {
    /// Syncs all lines, then removes the oldest files until the rest have at most `bytes_max` bytes together, and the
    /// files whose last line was written before `from`. Always keeps the newest file. Returns the number of removed
    /// files. The time it takes does not depend on the number of lines.
    ///
    /// # Errors
    /// If the folder can't be read, if the line that reports the removal is not on the disk (then no file was removed),
    /// or if a file can't be removed.
    pub fn keep_within(&self, bytes_max: u64, from: SystemTime) -> Result<usize, AuditError> {
        // No other file begins meanwhile.
        let mut end = self.end.lock();
        end.sync()?;
        let files = segments(&end.folder)?;
        let count = surplus(&files, bytes_max, from)?;
        let (Some((oldest, _)), Some((stays, path))) = (files.first().filter(|_| count > 0), files.get(count)) else {
            return Ok(0);
        };
        // If a file could not be removed last time, the line was written then.
        if end.dropped_before < *stays {
            let scope = format!("lines {oldest} to {}", stays - 1);
            let hash = prev_of_first(path).map_or_else(|| "unknown".to_owned(), |line| line.prev);
            let outcome = format!("removed as `[audit]` says; the hash of the last one: {hash}");
            let at_ms = SystemClock.now_ms();
            let line = line_of(Kind::Dropped, at_ms, &Identity::default(), CALL, &scope, &outcome);
            end.append(line, Durable::Yes)?;
            end.dropped_before = *stays;
        }
        for (_, path) in files.iter().take(count) {
            fs::remove_file(path).map_err(failed("remove", path))?;
        }
        sync_folder(&end.folder)?;
        Ok(count)
    }
}

/// The number of oldest files that exceed a limit.
fn surplus(files: &[(u64, PathBuf)], bytes_max: u64, from: SystemTime) -> Result<usize, AuditError> {
    let look = |(_, path): &(u64, PathBuf)| {
        let found = fs::metadata(path).and_then(|found| Ok((found.len(), found.modified()?)));
        found.map_err(failed("look at", path))
    };
    let found: Vec<(u64, SystemTime)> = files.iter().map(look).collect::<Result<_, _>>()?;
    let mut bytes: u64 = found.iter().map(|(bytes, _)| bytes).sum();
    let mut count = 0;
    for (length, modified) in found.iter().take(files.len().saturating_sub(1)) {
        if bytes <= bytes_max && *modified >= from {
            break;
        }
        bytes -= length;
        count += 1;
    }
    Ok(count)
}

/// The first line of a file; `None` if it is unreadable or damaged.
fn prev_of_first(path: &Path) -> Option<Line> {
    let mut text = Vec::new();
    let mut file = BufReader::new(File::open(path).ok()?);
    file.read_until(b'\n', &mut text).ok()?;
    Line::open(text.strip_suffix(b"\n")?).ok()
}

/// The removal that a line reports: the number of the first line that remained, and the hash of the last removed one.
pub(super) fn dropped(line: &Line) -> Option<(u64, &str)> {
    let last: u64 = line.scope.rsplit_once(" to ")?.1.parse().ok()?;
    let hash = line.outcome.rsplit_once(": ")?.1;
    (line.kind == Kind::Dropped).then_some((last.checked_add(1)?, hash))
}
