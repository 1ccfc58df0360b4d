//! The end of an audit log: chains lines and appends them. Its file `head`, and the open file.
//!
//! A durable line, and all before it, are on the disk when it is written, and then `head` counts them. Others are with
//! the operating system, and reach the disk with the next sync: `head` is behind them until then, and never ahead.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use trueup_base::regular;
use trueup_base::replace::{self, Durable};

use super::line::{AuditError, Kind, Line, NO_HASH, failed};

/// The position of the next line.
#[derive(Debug)]
pub(super) struct End {
    pub(super) folder: PathBuf,
    /// A file ends before the line that would make it longer.
    pub(super) segment_bytes_max: u64,
    pub(super) head: Head,
    pub(super) head_file: File,
    /// The file that grows; `None` before the first line of a log.
    pub(super) segment: Option<Open>,
    /// Whether lines may not be on the disk yet.
    pub(super) is_unsynced: bool,
    /// A write failed and left bytes behind.
    pub(super) stopped: bool,
    /// This process has reported that the lines before this one were removed.
    pub(super) dropped_before: u64,
}

impl End {
    /// Numbers, chains and writes a line, all of it or nothing.
    pub(super) fn append(&mut self, mut line: Line, durable: Durable) -> Result<(), AuditError> {
        if self.stopped {
            return Err(AuditError::Stopped);
        }
        line.n = self.head.lines;
        if line.kind != Kind::Broken {
            line.prev.clone_from(&self.head.hash);
        }
        let bytes = line
            .seal()
            .map_err(|error| failed("write", &self.folder)(error.into()))?;
        let length = bytes.len() as u64;
        let has_room = |open: &Open| open.bytes == 0 || open.bytes + length <= self.segment_bytes_max;
        let mut open = match self.segment.take_if(|open| has_room(open)) {
            Some(open) => open,
            None => {
                self.sync()?;
                Open::create(&self.folder, self.head.lines)?
            }
        };
        let written = open.file.write_all(&bytes).and_then(|()| match durable {
            Durable::Yes => open.file.sync_data(),
            Durable::No => Ok(()),
        });
        if let Err(error) = written {
            // The line is not confirmed, so remove what was written of it.
            self.stopped = open.file.set_len(open.bytes).is_err();
            let path = open.path.clone();
            self.segment = Some(open);
            return Err(failed("write", &path)(error));
        }
        open.bytes += length;
        self.segment = Some(open);
        let lines = line.n + 1;
        let hash = line.hash;
        self.head = Head { lines, hash };
        self.is_unsynced = durable == Durable::No;
        if durable == Durable::Yes {
            self.write_head();
        }
        Ok(())
    }

    /// Returns once all lines are on the disk.
    pub(super) fn sync(&mut self) -> Result<(), AuditError> {
        if let Some(open) = self.segment.as_ref().filter(|_| self.is_unsynced) {
            open.file.sync_data().map_err(failed("sync", &open.path))?;
            self.is_unsynced = false;
            self.write_head();
        }
        Ok(())
    }

    /// A head that is behind is no damage: the lines remain valid, and the next write tries again.
    fn write_head(&self) {
        if let Err(error) = self.head.write(&self.head_file) {
            tracing::warn!("can't write `{}`: {error}", self.folder.join(HEAD).display());
        }
    }
}

/// The name of the file of [`Head`].
pub(super) const HEAD: &str = "head";

/// Number of digits: enough for any 64-bit number, so that every head has the same length.
const DIGITS: usize = 20;

/// The file `head`: the number of lines, and the hash of the last one.
///
/// A hash chain does not detect that its end is missing; this file does. The host overwrites it in place after each
/// line is on the disk. After a crash it may be behind the log, but never ahead of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// The number of lines.
    pub(super) lines: u64,
    /// The hash of the last one.
    pub(super) hash: String,
}

impl Default for Head {
    fn default() -> Self {
        let lines = 0;
        let hash = NO_HASH.to_owned();
        Self { lines, hash }
    }
}

impl Head {
    fn text(&self) -> String {
        format!("{:0DIGITS$} {}\n", self.lines, self.hash)
    }

    /// Writes the head in place. It is shorter than a sector, so the write is atomic.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        file.write_all_at(self.text().as_bytes(), 0)
    }

    /// Reads the head; `None` if there is no file. The inner error says what is wrong with it.
    pub(super) fn read(folder: &Path) -> Result<Option<Result<Self, &'static str>>, AuditError> {
        let path = folder.join(HEAD);
        let bytes = match regular::read(&path, regular::SMALL) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed("read", &path))?,
        };
        let head = Self::parse(&bytes);
        Ok(Some(
            head.ok_or("is not a number of lines and the hash of the last one"),
        ))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (lines, hash) = text.strip_suffix('\n')?.split_once(' ')?;
        let lines = lines.parse().ok()?;
        let hash = hash.to_owned();
        let head = Self { lines, hash };
        // Each head has exactly one valid spelling.
        (head.text() == text && head.hash.len() == NO_HASH.len()).then_some(head)
    }
}

/// The file of an audit log that is open for writing.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl Open {
    pub(super) fn create(folder: &Path, first: u64) -> Result<Self, AuditError> {
        let path = folder.join(segment_name(first));
        // Append mode: after the host undoes a line, the next one begins where the file ends.
        let file = regular::open_own(OpenOptions::new().append(true).create(true), &path);
        let file = file.map_err(failed("create", &path))?;
        // An earlier attempt may have created the file. A file with content belongs to another process.
        let is_empty = file.metadata().map(|about| about.len() == 0);
        if !is_empty.map_err(failed("look at", &path))? {
            return Err(failed("create", &path)(io::ErrorKind::AlreadyExists.into()));
        }
        sync_folder(folder)?;
        Ok(Self { file, path, bytes: 0 })
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), AuditError> {
    replace::sync_folder(folder).map_err(failed("sync", folder))
}

/// The name of the file that begins with line `first`.
pub(super) fn segment_name(first: u64) -> String {
    format!("{first}.jsonl")
}
