//! Writes the journal of one instance: a folder of segments, the newest of which grows line by line.
//!
//! Each line is written whole, by one write, before any action depends on it. A killed host therefore leaves at most
//! one torn line at the end, and opening the journal cuts it off. After a failed write, nothing more is written: a
//! journal may end early, but it never has a gap.
//!
//! `line.rs` defines the lines, `entry.rs` their order; only the tape writes entries.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use trueup_base::replace::{self, Durable};
use trueup_base::{folder, text};

use crate::entry::{Header, Kind, Position};
use crate::files::{Files, Owner};
use crate::folder::{SegmentFile, failed, segment_files, segment_path, sync_dir, truncate, write_whole};
use crate::line;
use crate::reader::{ReadError, Segment, Torn};

/// When a line counts as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// It reaches the operating system before the guest sees the answer: survives the host's end, not the machine's.
    #[default]
    Write,
    /// It is on the disk before the guest sees the answer.
    Fsync,
    /// It reaches the operating system at once, and the disk at the first [`Journal::tick`] after this many
    /// milliseconds.
    Interval {
        /// Milliseconds between two syncs.
        ms: u64,
    },
}

/// A header up to this size may be written again at any time: its snapshot takes less time than the calls of a segment.
const HEADER_BYTES_SMALL: u64 = 64 << 10;

/// How to keep a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// When a line counts as safe.
    pub sync: Sync,
    /// A segment with this many bytes after its header is long enough.
    pub segment_bytes: u64,
    /// A segment with this many entries after its header is long enough.
    pub segment_entries: u64,
    /// When a new segment begins, the newest ones up to this total size in bytes are kept. The newest one, from which
    /// an instance is rebuilt, is always kept.
    pub keep_bytes: u64,
}

impl Default for Options {
    /// An instance is rebuilt from one segment, so 1,000 entries or 1 MiB limit the time for that; 256 MiB of history
    /// per instance.
    fn default() -> Self {
        Self {
            sync: Sync::Write,
            segment_bytes: 1 << 20,
            segment_entries: 1000,
            keep_bytes: 256 << 20,
        }
    }
}

/// Why a journal can't be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The operating system returned an error.
    #[error("can't {tried} `{path}`", path = path.display())]
    Io {
        /// The operation, such as `write to`.
        tried: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The newest segment can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An earlier write failed, and a line after it would follow a gap.
    #[error("nothing more is written to `{dir}`: {reason}", dir = dir.display())]
    Stopped {
        /// The journal's folder.
        dir: PathBuf,
        /// The earlier error.
        reason: String,
    },
    /// The call is invalid at this point.
    #[error("{0}")]
    Misplaced(&'static str),
}

/// The journal of one instance, open for writing.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    options: Options,
    owner: Owner,
    next_n: u64,
    /// The newest segment when the journal was opened, until it is continued or another begins.
    found: Option<Growing>,
    growing: Option<Growing>,
    /// All segments before the growing one, oldest first.
    older: VecDeque<SegmentFile>,
    unsynced: bool,
    /// Whether the folder's entry of the growing segment is on the disk.
    named: bool,
    last_sync: Option<Instant>,
    stopped: Option<String>,
}

/// The result of [`Journal::open`].
#[derive(Debug)]
pub struct Opened {
    /// The journal. It takes entries after [`Journal::start_segment`] or [`Journal::continue_segment`].
    pub journal: Journal,
    /// Its newest segment, without the torn part.
    pub newest: Option<Segment>,
    /// The torn line that was cut off.
    pub torn: Option<Torn>,
}

/// The segment at the end of the journal.
#[derive(Debug)]
struct Growing {
    file: SegmentFile,
    header_bytes: u64,
    entries: u64,
    position: Position,
}

impl Growing {
    /// The number of the entry after its last one.
    fn next_n(&self) -> u64 {
        self.file.first.saturating_add(1).saturating_add(self.entries)
    }
}

/// The end of a folder's segments: the number of the next entry, the newest segment, and what was cut off.
type Ends = (u64, Option<(Growing, Segment)>, Option<Torn>);

/// Takes the newest segment from the end of `files`. Cuts off its torn last line, and removes empty segments.
fn take_newest(files: &mut VecDeque<SegmentFile>) -> Result<Ends, JournalError> {
    let (mut next_n, mut torn) = (0, None);
    while let Some(file) = files.pop_back() {
        match Segment::read(&file.path) {
            Ok(mut segment) => {
                if let Some(cut) = segment.torn.take() {
                    truncate(&file.path, segment.bytes)?;
                    torn = torn.or(Some(cut));
                }
                if segment.first != file.first {
                    let reason = format!("entry {} begins a file named for entry {}", segment.first, file.first);
                    let file = segment.name;
                    let line = 1;
                    return Err(ReadError::Damaged { file, line, reason }.into());
                }
                let bytes = segment.bytes;
                let next_n = next_n.max(segment.next_n());
                let growing = Growing {
                    file: SegmentFile { bytes, ..file },
                    header_bytes: segment.header_bytes,
                    entries: segment.entries.len() as u64,
                    position: segment.position,
                };
                return Ok((next_n, Some((growing, segment)), torn));
            }
            // The host was killed while it wrote the header: the previous segment is the newest one.
            Err(ReadError::Empty { torn: cut, .. }) => {
                fs::remove_file(&file.path).map_err(failed("remove", &file.path))?;
                torn = torn.or(cut);
                next_n = next_n.max(file.first);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((next_n, None, torn))
}

impl Journal {
    /// Opens the journal in a folder, creating the folder if it is missing. Cuts off a torn last line and reports it;
    /// any other damage of the newest segment is an error.
    pub fn open(dir: &Path, options: Options, files: &Files) -> Result<Opened, JournalError> {
        let owner = files.enter(dir);
        let durable = match options.sync {
            Sync::Write => Durable::No,
            Sync::Fsync | Sync::Interval { .. } => Durable::Yes,
        };
        folder::make(dir, durable).map_err(failed("create", dir))?;
        let mut older = VecDeque::from(segment_files(dir)?);
        let (next_n, newest, torn) = take_newest(&mut older)?;
        let (found, newest) = newest.unzip();
        let journal = Self {
            dir: dir.to_owned(),
            options,
            owner,
            next_n,
            found,
            growing: None,
            older,
            unsynced: false,
            named: false,
            last_sync: None,
            stopped: None,
        };
        Ok(Opened { journal, newest, torn })
    }

    /// The number of the next entry.
    pub fn next_n(&self) -> u64 {
        self.next_n
    }

    /// Leaves out the numbers before `n`, which entries had that can't be read any more.
    pub fn skip_to(&mut self, n: u64) {
        self.next_n = self.next_n.max(n);
    }

    /// The currently growing file.
    pub fn segment_path(&self) -> Option<&Path> {
        self.growing.as_ref().map(|growing| growing.file.path.as_path())
    }

    /// Begins a segment with the instance's current state, and removes old ones. Also used to continue after a call
    /// that failed or never ended.
    pub fn start_segment(&mut self, header: &Header) -> Result<(), JournalError> {
        self.check_not_stopped()?;
        if self.position().inside_call() {
            return Err(JournalError::Misplaced("a segment can't begin inside a call"));
        }
        let mut line = Vec::new();
        line::header(&mut line, self.next_n, header);
        line::finish(&mut line);
        if self.unsynced {
            // From here on, syncs only affect the new file.
            self.sync_now()?;
        }
        let first = self.next_n;
        let bytes = line.len() as u64;
        let path = segment_path(&self.dir, first);
        let started = self.create(&path, &line);
        self.stop_on_error(started)?;
        let file = SegmentFile { first, path, bytes };
        self.next_n += 1;
        if let Some(before) = self.growing.take().or(self.found.take()) {
            self.older.push_back(before.file);
        }
        self.growing = Some(Growing {
            file,
            header_bytes: bytes,
            entries: 0,
            position: Position::Starting,
        });
        self.remove_old();
        Ok(())
    }

    /// Whether [`Journal::continue_segment`] is possible: the newest segment ends where the instance can continue, and
    /// the next entry's number follows its last one. After a power failure it may not: later entries were lost with
    /// their segments.
    pub fn can_continue(&self) -> bool {
        let found = self.found.as_ref();
        found.is_some_and(|found| found.position.can_go_on() && found.next_n() == self.next_n)
    }

    /// Continues in the newest segment that [`Journal::open`] found, if [`Journal::can_continue`].
    pub fn continue_segment(&mut self) -> Result<(), JournalError> {
        self.check_not_stopped()?;
        if !self.can_continue() {
            let misplaced = "there is no segment that can be continued: begin one";
            return Err(JournalError::Misplaced(misplaced));
        }
        self.growing = self.found.take();
        Ok(())
    }

    /// Records, at the end of the newest segment, that the entries after number `last_valid` are invalid, because the
    /// instance's data was lost with them. A segment must begin after it.
    pub fn roll_back(&mut self, last_valid: u64) -> Result<(), JournalError> {
        self.check_not_stopped()?;
        self.growing = self.found.take().or(self.growing.take());
        // If entries between this segment's end and the next one were lost, its own count continues.
        let n = self.growing.as_ref().map_or(self.next_n, Growing::next_n);
        let mut line = Vec::new();
        line::rolled_back(&mut line, n, last_valid);
        line::finish(&mut line);
        self.append(&line, Kind::RolledBack)
    }

    /// Whether a new segment should begin now, between calls. It should if the last call failed: the instance is gone,
    /// and the next one begins with its own state. It should also if this segment is long enough. After a large header
    /// it must hold as much again, so that snapshots of a large state cost no more than recording does.
    pub fn wants_rotation(&self) -> bool {
        let Some(growing) = &self.growing else { return false };
        let recorded = growing.file.bytes.saturating_sub(growing.header_bytes);
        let long = growing.entries >= self.options.segment_entries || recorded >= self.options.segment_bytes;
        let long = long && (growing.header_bytes <= HEADER_BYTES_SMALL || recorded >= growing.header_bytes);
        match growing.position {
            Position::Between { failed } => failed || long,
            Position::RolledBack => true,
            _ => false,
        }
    }

    /// With [`Sync::Interval`]: syncs to the disk if it is time.
    pub fn tick(&mut self, now: Instant) -> Result<(), JournalError> {
        let Sync::Interval { ms } = self.options.sync else {
            return Ok(());
        };
        let since = self.last_sync.map(|last| now.saturating_duration_since(last));
        if !self.unsynced || since.is_some_and(|since| since < Duration::from_millis(ms)) {
            return Ok(());
        }
        self.last_sync = Some(now);
        self.sync_now()
    }

    /// Syncs everything written to the disk.
    pub fn sync_now(&mut self) -> Result<(), JournalError> {
        self.check_not_stopped()?;
        let Some(growing) = &self.growing else { return Ok(()) };
        let path = &growing.file.path;
        let synced = self.owner.sync(path).map_err(failed("sync", path));
        self.stop_on_error(synced)?;
        if !self.named {
            self.stop_on_error(sync_dir(&self.dir))?;
            self.named = true;
        }
        self.unsynced = false;
        Ok(())
    }

    /// Whether an entry of this kind could be written now. Checked before the host does anything that must be recorded.
    pub(crate) fn check(&self, kind: Kind) -> Result<Position, JournalError> {
        self.check_not_stopped()?;
        self.position().then(kind).map_err(JournalError::Misplaced)
    }

    fn position(&self) -> Position {
        let growing = self.growing.as_ref();
        growing.map_or(Position::Start, |growing| growing.position)
    }

    /// Writes one line, including its newline, with the number of the next entry.
    pub(crate) fn append(&mut self, line: &[u8], kind: Kind) -> Result<(), JournalError> {
        let position = self.check(kind)?;
        let written = self.write(line);
        self.stop_on_error(written)?;
        if let Some(growing) = &mut self.growing {
            growing.file.bytes += line.len() as u64;
            growing.entries += 1;
            growing.position = position;
        }
        self.next_n += 1;
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> Result<(), JournalError> {
        let Some(growing) = &self.growing else {
            return Err(JournalError::Misplaced("no segment was begun"));
        };
        let path = &growing.file.path;
        let file = self.owner.open(path).map_err(failed("open", path))?;
        write_whole(&mut &*file, line, || file.set_len(growing.file.bytes)).map_err(failed("write to", path))?;
        self.owner.wrote(line.len());
        match self.options.sync {
            Sync::Write => {}
            Sync::Fsync => file.sync_data().map_err(failed("sync", path))?,
            Sync::Interval { .. } => self.unsynced = true,
        }
        Ok(())
    }

    fn create(&mut self, path: &Path, header: &[u8]) -> Result<(), JournalError> {
        let created = OpenOptions::new().append(true).create_new(true).open(path);
        let file = created.map_err(failed("create", path))?;
        write_whole(&mut &file, header, || file.set_len(0)).map_err(failed("write to", path))?;
        self.owner.wrote(header.len());
        // An interval limits what a crash of the machine may lose. A segment's beginning is more important, since older
        // segments may be removed for it.
        self.named = self.options.sync != Sync::Write;
        if self.named {
            file.sync_data().map_err(failed("sync", path))?;
            sync_dir(&self.dir)?;
        }
        self.owner.insert(Arc::new(file));
        Ok(())
    }

    /// Removes the oldest segments until the rest fits. A segment that can't be removed only takes space, so the
    /// journal continues, and the next segment tries again.
    fn remove_old(&mut self) {
        let mut bytes = self.growing.as_ref().map_or(0, |growing| growing.file.bytes);
        bytes += self.older.iter().map(|file| file.bytes).sum::<u64>();
        self.older.retain(|file| {
            if bytes <= self.options.keep_bytes {
                return true;
            }
            bytes -= file.bytes;
            let removed = replace::remove(&file.path);
            if let Err(error) = &removed {
                let path = file.path.display();
                tracing::warn!("can't remove `{path}`, an old part of a recording: {error}; trying again later");
            }
            removed.is_err()
        });
    }

    fn check_not_stopped(&self) -> Result<(), JournalError> {
        let Some(reason) = self.stopped.clone() else {
            return Ok(());
        };
        let dir = self.dir.clone();
        Err(JournalError::Stopped { dir, reason })
    }

    fn stop_on_error(&mut self, done: Result<(), JournalError>) -> Result<(), JournalError> {
        if let Err(error) = &done {
            self.stopped = Some(text::causes(error));
        }
        done
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.unsynced {
            // The next journal of this folder knows nothing of these lines. Ignore the error: there is no caller left
            // to stop.
            let _ = self.sync_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::header;

    fn every_100_ms(dir: &Path, files: &Files) -> Journal {
        let options = Options {
            sync: Sync::Interval { ms: 100 },
            ..Options::default()
        };
        Journal::open(dir, options, files).unwrap().journal
    }

    fn ask(journal: &mut Journal) {
        let mut line = Vec::new();
        line::ask(&mut line, journal.next_n(), "a.b");
        line.extend_from_slice(b"{},\"answer\":1");
        line::finish(&mut line);
        journal.append(&line, Kind::Ask { answered: true }).unwrap();
    }

    #[test]
    fn an_interval_passes_between_two_syncs() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut journal = every_100_ms(dir.path(), &Files::default());
        journal.start_segment(&header(None)).unwrap();
        let start = Instant::now();
        let mut unsynced_after = |ms| {
            ask(&mut journal);
            journal.tick(start + Duration::from_millis(ms)).unwrap();
            journal.unsynced
        };
        assert_eq!(
            [1000, 1099, 1100, 1101, 1200].map(&mut unsynced_after),
            [false, true, false, true, false]
        );
    }

    #[test]
    fn the_tail_of_a_segment_is_synced_before_the_next_and_at_the_end() {
        let dir = tempfile::TempDir::new().unwrap();
        let files = Files::default();
        let mut journal = every_100_ms(dir.path(), &files);
        journal.start_segment(&header(None)).unwrap();
        ask(&mut journal);
        assert_eq!(files.synced(), [] as [PathBuf; 0]);
        let first = journal.segment_path().unwrap().to_owned();
        journal.start_segment(&header(None)).unwrap();
        assert_eq!(files.synced(), std::slice::from_ref(&first));
        let second = journal.segment_path().unwrap().to_owned();
        ask(&mut journal);
        drop(journal);
        assert_eq!(files.synced(), [first, second]);
    }
}
