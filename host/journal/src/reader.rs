//! Reads one segment: header, entries, and the torn part at its end. Never changes the file.
//!
//! [`Scan`] reads it line by line: it parses each line, and checks whether it is allowed there. It also serves readers
//! of a file that is too large or still growing.

use std::io::Write;
use std::path::Path;
use std::{fmt, io, str};

use crate::entry::{Ending, Entry, Event, Header, Position};
use trueup_base::regular;

/// One segment of a journal, read completely.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The file, or its replacement in messages.
    pub name: String,
    /// Number of the header's entry.
    pub first: u64,
    /// The recorded guest, and its initial state.
    pub header: Header,
    /// Everything after the header.
    pub entries: Vec<Entry>,
    /// The part left out at the end.
    pub torn: Option<Torn>,
    pub(crate) position: Position,
    /// Bytes of the header's line.
    pub(crate) header_bytes: u64,
    /// Bytes of all complete lines.
    pub(crate) bytes: u64,
}

/// The last line of a segment, cut off in the middle by a crash: no action followed from it, so it is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file, or its replacement in messages.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The number of its bytes.
    pub bytes: u64,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, bytes } = self;
        write!(f, "`{file}` line {line} is torn: its {bytes} bytes are left out")
    }
}

/// Why a segment can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file can't be opened or read.
    #[error("can't read `{file}`")]
    Io {
        /// The file, or its replacement in messages.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A line is not a valid entry, or not in its place.
    #[error("`{file}` line {line} is damaged: {reason}")]
    Damaged {
        /// The file, or its replacement in messages.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The file lacks a complete header.
    #[error("`{file}` holds no entry: the file ends before its first line does")]
    Empty {
        /// The file, or its replacement in messages.
        file: String,
        /// The beginning of a header, if there is one.
        torn: Option<Torn>,
    },
}

impl Segment {
    /// A segment without a file: these entries, numbered consecutively after a header with number `first`.
    ///
    /// # Errors
    /// If an entry is not allowed in its place.
    pub fn of(name: &str, first: u64, header: Header, entries: Vec<Entry>) -> Result<Self, ReadError> {
        let mut segment = Self {
            name: name.to_owned(),
            first,
            header,
            entries,
            torn: None,
            position: Position::Starting,
            header_bytes: 0,
            bytes: 0,
        };
        let mut scan = Scan::new(name);
        for (entry, line) in segment.entries.iter_mut().zip(2_u64..) {
            entry.n = first.saturating_add(line - 1);
            scan.lines = line;
            let position = segment.position.then(entry.kind());
            segment.position = position.map_err(|reason| scan.damaged(reason.to_owned()))?;
        }
        Ok(segment)
    }

    /// Writes the lines of a file that reads as this segment.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let header = Entry {
            n: self.first,
            event: Event::Header(Box::new(self.header.clone())),
        };
        writeln!(to, "{}", header.to_line())?;
        let mut entries = self.entries.iter();
        entries.try_for_each(|entry| writeln!(to, "{}", entry.to_line()))
    }

    /// Reads the segment in a file.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        match regular::read(path, regular::RECORDS) {
            Ok(bytes) => Self::from_bytes(&name, &bytes),
            Err(source) => Err(ReadError::Io { file: name, source }),
        }
    }

    /// Reads the segment in `bytes`; `name` replaces the file in messages.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, ReadError> {
        let mut scan = Scan::new(name);
        let mut read: Option<Self> = None;
        let mut torn = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let bytes = line.len() as u64;
            let Some(text) = line.strip_suffix(b"\n") else {
                // Only the last piece can lack its newline.
                torn = Some(scan.torn(bytes));
                break;
            };
            let Entry { n, event } = scan.line(text)?;
            match (&mut read, event) {
                (None, Event::Header(header)) => {
                    let mut segment = Self::of(name, n, *header, Vec::new())?;
                    segment.header_bytes = bytes;
                    segment.bytes = bytes;
                    read = Some(segment);
                }
                // The scan allows no other first entry.
                (None, _) => break,
                (Some(segment), event) => {
                    segment.entries.push(Entry { n, event });
                    segment.bytes += bytes;
                }
            }
        }
        let Some(mut segment) = read else {
            let file = name.to_owned();
            return Err(ReadError::Empty { file, torn });
        };
        segment.torn = torn;
        segment.position = scan.position;
        Ok(segment)
    }

    /// The number of this instance's next entry.
    pub fn next_n(&self) -> u64 {
        let last = self.entries.last().map_or(self.first, |entry| entry.n);
        last.saturating_add(1)
    }

    /// Whether the last call has no ending: the host was killed inside it, or its end is torn off.
    pub fn ends_inside_call(&self) -> bool {
        self.position.inside_call()
    }

    /// Whether this segment's instance can continue in it: no call is open, the last one returned a result, and its
    /// start questions were answered.
    pub fn can_go_on(&self) -> bool {
        self.position.can_go_on()
    }

    /// Whether the state in the header is valid: no rollback goes back beyond it.
    pub fn snapshot_is_valid(&self) -> bool {
        let is_beyond = |entry: &Entry| matches!(entry.event, Event::RolledBack(last_valid) if last_valid < self.first);
        !self.entries.iter().any(is_beyond)
    }

    /// The calls that returned a result, and the questions before the first call, from which an instance is rebuilt
    /// after a failed call. Omits rolled-back entries, too. Numbers stay as recorded, so there are gaps where calls
    /// were omitted.
    #[must_use]
    pub fn without_failed_calls(mut self) -> Self {
        let mut kept = Vec::with_capacity(self.entries.len());
        let mut call: Option<Vec<Entry>> = None;
        for entry in std::mem::take(&mut self.entries) {
            match (&entry.event, &mut call) {
                (Event::Call(_), _) => call = Some(vec![entry]),
                (Event::Ending(Ending::Result(_)), Some(entries)) => {
                    kept.append(entries);
                    kept.push(entry);
                    call = None;
                }
                (Event::Ending(_), _) => call = None,
                (Event::RolledBack(last_valid), _) => {
                    keep_up_to(&mut kept, *last_valid);
                    call = None;
                }
                (_, Some(entries)) => entries.push(entry),
                (_, None) => kept.push(entry),
            }
        }
        let then = |position: Position, entry: &Entry| position.then(entry.kind());
        let position = kept.iter().try_fold(Position::Starting, then);
        self.position = position.unwrap_or(self.position);
        self.entries = kept;
        self
    }
}

/// Keeps the entries up to number `last_valid`, except calls that had not ended by then.
fn keep_up_to(kept: &mut Vec<Entry>, last_valid: u64) {
    kept.retain(|entry| entry.n <= last_valid);
    let last_call = kept.iter().rposition(|entry| entry.call().is_some());
    let has_ended = matches!(kept.last().map(|entry| &entry.event), Some(Event::Ending(_)));
    if let (Some(at), false) = (last_call, has_ended) {
        kept.truncate(at);
    }
}

/// The progress of reading one segment. Give it every complete line, in order, from the file's first on.
#[derive(Debug, Clone)]
pub struct Scan {
    name: String,
    /// Lines read.
    lines: u64,
    /// Number of the next entry; `None` before the header.
    expected: Option<u64>,
    position: Position,
}

impl Scan {
    /// Before the first line; `name` replaces the file in messages.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            lines: 0,
            expected: None,
            position: Position::Start,
        }
    }

    /// Reads the next line, without its newline. The first is the header.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if it is not a valid entry, or not in its place. Later lines can't be read then.
    pub fn line(&mut self, text: &[u8]) -> Result<Entry, ReadError> {
        self.lines += 1;
        if self.lines == 1 && !text.starts_with(b"{") {
            let header = "not a JSON object; a recording, such as `journals/GUEST/KEY/0.jsonl`, begins with its header";
            return Err(self.damaged(header.to_owned()));
        }
        let utf8 = str::from_utf8(text).map_err(|error| error.valid_up_to() + 1);
        let utf8 = utf8.map_err(|column| self.damaged(format!("not UTF-8 from column {column} on")))?;
        let entry = Entry::parse(utf8).map_err(|reason| self.damaged(reason))?;
        let n = entry.n;
        if let Some(expected) = self.expected.filter(|expected| *expected != n) {
            let missing = "a line is missing, or out of its place";
            return Err(self.damaged(format!("entry {n} is where entry {expected} belongs: {missing}")));
        }
        let position = self.position.then(entry.kind());
        self.position = position.map_err(|reason| match self.expected {
            None => self.damaged(reason.to_owned()),
            Some(_) => self.damaged(format!("{reason} (entry {n})")),
        })?;
        self.expected = Some(n.saturating_add(1));
        Ok(entry)
    }

    /// Describes this many bytes without a newline after the lines read so far.
    pub fn torn(&self, bytes: u64) -> Torn {
        Torn {
            file: self.name.clone(),
            line: self.lines + 1,
            bytes,
        }
    }

    fn damaged(&self, reason: String) -> ReadError {
        ReadError::Damaged {
            file: self.name.clone(),
            line: self.lines,
            reason,
        }
    }
}
