//! The audit log: a tamper-evident record of refusals to guests and of management actions on them.
//!
//! A folder of JSON Lines files, in which a hash chains each line to the previous one. A management action continues
//! only after its line is on the disk. A refusal's line is with the operating system at once, and on the disk within a
//! minute: a guest with many refusals must neither make the host wait for its disk nor fill it. The log therefore
//! writes [`LINES_PER_MINUTE_MAX`] refusals per guest. Guests cannot see the log: no journal depends on it, and a
//! replay writes none. A chain without a key reveals lines that were edited, removed, inserted or moved. It does not
//! protect against an attacker who rewrites the whole folder. To detect that too, copy `head` to another machine now
//! and then.
//!
//! ```text
//! Guard (refusals) -- budget --\
//! host (swaps, ...) -----------+-> writer -> <folder>/0.jsonl, <folder>/5120.jsonl, ... and head
//!                                   verify: the whole chain <--------+
//! ```
//!
//! [`Audit::keep_within`] removes the oldest files in a way that `verify` can tell from a truncated log.
//!
//! ```text
//! 0.jsonl  5120.jsonl  10240.jsonl                                 above a limit
//! 0.jsonl  5120.jsonl  10240.jsonl + "lines 0 to 5119", its hash   a line says so: chained, on the disk
//!          5120.jsonl  10240.jsonl                                 then the files go, oldest first
//! ```
//!
//! A log that does not begin with line 0 must hold such a line, and its first line must follow the last removed one.

mod found;
mod line;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::replace::{self, Durable};
use trueup_base::{folder, regular, text};

pub use line::{AuditError, Kind, Line};
pub use verify::{PROBLEMS_MAX, Problem, Verdict, is_log, verify, walk};

use crate::identity::Identity;
use found::Found;
use line::{failed, line_of};
use verify::segments;
use writer::{End, sync_folder};

/// Above this length the log begins a new file. The host checks all of the newest file at each start: 16 MiB are some
/// 30,000 lines and a tenth of a second.
pub const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// The maximum number of refusals written per guest and minute. Ten a second show what the guest tries, and take at
/// most 360 KB a minute on the disk.
pub const LINES_PER_MINUTE_MAX: u32 = 600;

/// The `call` of a line that reports removed lines.
const DROP: &str = "audit.drop";

const MINUTE: Duration = Duration::from_secs(60);

/// An audit log that is open for writing. The lock of the state folder ensures that only one process has it open.
/// Dropping it syncs all lines.
#[derive(Debug)]
pub struct Audit {
    budgets: Mutex<Budgets>,
    end: Mutex<End>,
}

impl Audit {
    /// Opens the log in `folder`, creating it if it is missing, and checks its newest file. It cuts off a torn last
    /// line, which a killed host may leave. It leaves any other damage as it is: the log continues in a new file, whose
    /// first line describes the damage. The host's log reports both.
    ///
    /// # Errors
    /// If the folder can't be read or written.
    pub fn open(folder: &Path) -> Result<Self, AuditError> {
        let budgets = Budgets::new(LINES_PER_MINUTE_MAX, MINUTE);
        Self::open_budgeted(folder, SEGMENT_BYTES_MAX, budgets)
    }

    fn open_budgeted(folder: &Path, segment_bytes_max: u64, budgets: Budgets) -> Result<Self, AuditError> {
        folder::make(folder, Durable::No).map_err(failed("create", folder))?;
        let is_new = !is_log(folder)?;
        let found = Found::look(folder)?;
        let head_path = folder.join(writer::HEAD);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let head_file = regular::open_own(&mut options, &head_path).map_err(failed("open", &head_path))?;
        let mut end = End {
            folder: folder.to_owned(),
            segment_bytes_max,
            head: found.head,
            head_file,
            // A killed host may have left lines that are not on the disk, nor counted in the head.
            is_unsynced: found.segment.is_some(),
            segment: found.segment,
            stopped: false,
            dropped_before: 0,
        };
        if is_new {
            // From here on, a log without a head is damaged.
            let written = end.head.write(&end.head_file).and_then(|()| end.head_file.sync_all());
            let written = written.and_then(|()| replace::sync_folder(folder));
            written.map_err(failed("write", &head_path))?;
            sync_folder(regular::folder_of(folder))?;
        }
        if let Some(line) = found.broken {
            tracing::error!(
                "audit log in `{}`: `{}` {}; it is kept as it is, and the audit log goes on in another file",
                folder.display(),
                line.scope,
                line.outcome
            );
            end.append(line, Durable::Yes)?;
        }
        let budgets = Mutex::new(budgets);
        let end = Mutex::new(end);
        Ok(Self { budgets, end })
    }

    /// Writes down a refusal, unless the guest has too many. Waits for the disk only if it begins a new file, or if
    /// another call waits for the disk at this moment.
    /// `entry` is the call's entry in the instance's journal, if it has one.
    ///
    /// # Errors
    /// If the log can't be written. The request is refused all the same.
    pub fn refused(
        &self,
        at_ms: u64,
        to: &Identity,
        entry: Option<u64>,
        call: &str,
        scope: &str,
        outcome: &str,
    ) -> Result<(), AuditError> {
        let mut line = {
            let mut budgets = self.budgets.lock();
            match budgets.admit(&to.guest, Instant::now()) {
                Admitted::Line => line_of(Kind::Refused, at_ms, to, call, scope, outcome),
                Admitted::Notice => line_of(Kind::Refused, at_ms, to, "*", "*", &budgets.notice()),
                Admitted::Nothing => return Ok(()),
            }
        };
        line.decision = line::cut(&to.decision(entry));
        self.end.lock().append(line, Durable::No)
    }

    /// Writes down a management action. `action` is `swap`, `rollback`, `fall-back`, `shadow start`, `shadow stop`,
    /// `promote` or `quarantine`; `scope` is its subject (a version, a key); `outcome` is its result, on one line.
    /// Empty fields of `about` are not written, such as the instance if the action affects all of them. Returns once
    /// the line and all earlier ones are on the disk.
    ///
    /// # Errors
    /// If the line is not on the disk.
    pub fn managed(
        &self,
        at_ms: u64,
        about: &Identity,
        action: &str,
        scope: &str,
        outcome: &str,
    ) -> Result<(), AuditError> {
        let line = line_of(Kind::Managed, at_ms, about, action, scope, outcome);
        self.end.lock().append(line, Durable::Yes)
    }

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
            let hash = first_line(path).map_or_else(|| "unknown".to_owned(), |line| line.prev);
            let outcome = format!("removed as `[audit]` says; the hash of the last one: {hash}");
            let at_ms = SystemClock.now_ms();
            let line = line_of(Kind::Dropped, at_ms, &Identity::default(), DROP, &scope, &outcome);
            end.append(line, Durable::Yes)?;
            end.dropped_before = *stays;
        }
        for (_, path) in files.iter().take(count) {
            fs::remove_file(path).map_err(failed("remove", path))?;
        }
        sync_folder(&end.folder)?;
        Ok(count)
    }

    /// Returns once all lines are on the disk.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn flush(&self) -> Result<(), AuditError> {
        self.end.lock().sync()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            tracing::error!("{}", text::causes(&error));
        }
    }
}

/// The first line of a file; `None` if it is unreadable or damaged.
fn first_line(path: &Path) -> Option<Line> {
    let mut text = Vec::new();
    let mut file = BufReader::new(File::open(path).ok()?);
    file.read_until(b'\n', &mut text).ok()?;
    Line::open(text.strip_suffix(b"\n")?).ok()
}

/// The number of oldest files that exceed a limit.
fn surplus(files: &[(u64, PathBuf)], bytes_max: u64, from: SystemTime) -> Result<usize, AuditError> {
    let look = |(_, path): &(u64, PathBuf)| {
        let found = fs::metadata(path).and_then(|found| Ok((found.len(), found.modified()?)));
        found.map_err(failed("look at", path))
    };
    let found: Vec<(u64, SystemTime)> = files.iter().map(look).collect::<Result<_, _>>()?;
    let mut bytes: u64 = found.iter().map(|(bytes, _)| bytes).sum();
    let all_but_newest = found.iter().take(files.len().saturating_sub(1));
    let exceeding = all_but_newest.take_while(|(length, modified)| {
        let exceeds = bytes > bytes_max || *modified < from;
        bytes -= length;
        exceeds
    });
    Ok(exceeding.count())
}

/// How many refusals of each guest are written: a guest must not fill the disk. Metrics count all of them. Only
/// decides; times are arguments.
#[derive(Debug)]
struct Budgets {
    lines: u32,
    window: Duration,
    /// By guest: when its window began, and its refusals since then.
    guests: BTreeMap<String, (Instant, u32)>,
}

/// What to write for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admitted {
    /// Its own line.
    Line,
    /// One line that says that no more are written.
    Notice,
    /// Nothing.
    Nothing,
}

impl Budgets {
    /// Allows `lines` lines per guest and window. A window begins with the guest's first refusal.
    fn new(lines: u32, window: Duration) -> Self {
        Self {
            lines,
            window,
            guests: BTreeMap::new(),
        }
    }

    /// Counts a refusal of this guest.
    fn admit(&mut self, guest: &str, now: Instant) -> Admitted {
        let (begun, refused) = self.guests.entry(guest.to_owned()).or_insert((now, 0));
        if now.saturating_duration_since(*begun) >= self.window {
            (*begun, *refused) = (now, 0);
        }
        *refused = refused.saturating_add(1);
        match (*refused).cmp(&self.lines.saturating_add(1)) {
            std::cmp::Ordering::Less => Admitted::Line,
            std::cmp::Ordering::Equal => Admitted::Notice,
            std::cmp::Ordering::Greater => Admitted::Nothing,
        }
    }

    /// The outcome in a line that says that no more are written.
    fn notice(&self) -> String {
        let lines = self.lines;
        let seconds = self.window.as_secs();
        format!("access denied: {lines} refusals within {seconds} s; further ones of this guest are only counted")
    }
}
