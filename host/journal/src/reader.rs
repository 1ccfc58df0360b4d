//! Reads one segment: header, entries, and what was torn off its end. Never changes the file.

use std::io::{Read, Write};
use std::path::Path;
use std::{fmt, io};

use crate::entry::{Ending, Entry, Event, Header};
use crate::order::Position;
use crate::regular;
use crate::scan::Scan;

/// One segment of a journal, read whole.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The file, or what stands for it in messages.
    pub name: String,
    /// Number of the header's entry.
    pub first: u64,
    /// Whose recording it is, and the state in which it begins.
    pub header: Header,
    /// Everything after the header.
    pub entries: Vec<Entry>,
    /// What was left out at the end.
    pub torn: Option<Torn>,
    pub(crate) position: Position,
    /// Bytes of the header's line.
    pub(crate) header_bytes: u64,
    /// Bytes of all complete lines.
    pub(crate) bytes: u64,
}

/// The last line of a segment, cut off in the middle by a crash: it was never acted on, and is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file, or what stands for it in messages.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// How many bytes of it there are.
    pub bytes: u64,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` line {} is torn: its {} bytes are left out",
            self.file, self.line, self.bytes
        )
    }
}

/// Why a segment can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file can't be opened or read.
    #[error("can't read `{file}`")]
    Io {
        /// The file, or what stands for it in messages.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// A line is no valid entry, or not the one that belongs there.
    #[error("`{file}` line {line} is damaged: {reason}")]
    Damaged {
        /// The file, or what stands for it in messages.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// There is not even a complete header.
    #[error("`{file}` holds no entry: the file ends before its first line does")]
    Empty {
        /// The file, or what stands for it in messages.
        file: String,
        /// The beginning of a header, where there is one.
        torn: Option<Torn>,
    },
}

impl Segment {
    /// A segment that no file holds: these entries, numbered one after the other behind a header of number `first`.
    ///
    /// # Errors
    /// Where an entry is not one that may stand there.
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
        for (entry, line) in segment.entries.iter_mut().zip(2_u64..) {
            entry.n = first.saturating_add(line - 1);
            segment.position = segment
                .position
                .then(entry.kind())
                .map_err(|reason| ReadError::Damaged {
                    file: name.to_owned(),
                    line,
                    reason: reason.to_owned(),
                })?;
        }
        Ok(segment)
    }

    /// Writes the lines of a file that reads as this segment.
    ///
    /// # Errors
    /// Where they can't be written.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let header = Entry {
            n: self.first,
            event: Event::Header(Box::new(self.header.clone())),
        };
        writeln!(to, "{}", header.to_line())?;
        self.entries
            .iter()
            .try_for_each(|entry| writeln!(to, "{}", entry.to_line()))
    }

    /// Reads the segment in a file.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        match regular::read(path, regular::RECORDS) {
            Ok(bytes) => Self::from_bytes(&name, &bytes),
            Err(source) => Err(ReadError::Io { file: name, source }),
        }
    }

    /// Reads the segment that a reader gives, such as the standard input; `name` stands for the file in messages.
    pub fn from_reader(name: &str, mut reader: impl Read) -> Result<Self, ReadError> {
        let mut bytes = Vec::new();
        match reader.read_to_end(&mut bytes) {
            Ok(_) => Self::from_bytes(name, &bytes),
            Err(source) => Err(ReadError::Io {
                file: name.to_owned(),
                source,
            }),
        }
    }

    /// Reads the segment in `bytes`; `name` stands for the file in messages.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, ReadError> {
        let mut scan = Scan::new(name);
        let mut read: Option<Self> = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(text) = line.strip_suffix(b"\n") else {
                // Only the last piece can lack its newline.
                let torn = Some(scan.torn(line.len() as u64));
                match &mut read {
                    Some(segment) => segment.torn = torn,
                    None => return Err(empty(name, torn)),
                }
                break;
            };
            let entry = scan.line(text)?;
            match (&mut read, entry.event) {
                (None, Event::Header(header)) => read = Some(Self::begin(name, entry.n, *header, line.len())),
                // The scan lets nothing else stand first.
                (None, _) => break,
                (Some(segment), event) => {
                    segment.entries.push(Entry { n: entry.n, event });
                    segment.bytes += line.len() as u64;
                }
            }
        }
        let mut segment = read.ok_or_else(|| empty(name, None))?;
        segment.position = scan.position();
        Ok(segment)
    }

    /// The segment that begins with this header.
    fn begin(name: &str, first: u64, header: Header, line_bytes: usize) -> Self {
        Self {
            name: name.to_owned(),
            first,
            header,
            entries: Vec::new(),
            torn: None,
            position: Position::Starting,
            header_bytes: line_bytes as u64,
            bytes: line_bytes as u64,
        }
    }

    /// The number that the next entry of this instance gets.
    pub fn next_n(&self) -> u64 {
        self.entries
            .last()
            .map_or(self.first, |entry| entry.n)
            .saturating_add(1)
    }

    /// Whether the last call has no ending: the host was killed inside it, or its end is torn off.
    pub fn ends_inside_call(&self) -> bool {
        self.position.inside_call()
    }

    /// Whether the instance that this segment describes can go on in it: no call of it is open, the last one returned a
    /// result, and what it asked at its start was answered.
    pub fn can_go_on(&self) -> bool {
        self.position.can_go_on()
    }

    /// Whether the state in the header stands: no rollback goes back beyond it.
    pub fn snapshot_stands(&self) -> bool {
        let first = self.first;
        self.entries
            .iter()
            .all(|entry| !matches!(entry.event, Event::RolledBack(stands) if stands < first))
    }

    /// The calls that returned a result, and the questions before the first call: what an instance is rebuilt from
    /// after a failed call. What was rolled back is left out too. Numbers stay as they were recorded, so there are gaps
    /// where calls were left out.
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
                (Event::RolledBack(stands), _) => {
                    keep_up_to(&mut kept, *stands);
                    call = None;
                }
                (_, Some(entries)) => entries.push(entry),
                (_, None) => kept.push(entry),
            }
        }
        self.position = kept
            .iter()
            .try_fold(Position::Starting, |position, entry| position.then(entry.kind()))
            .unwrap_or(self.position);
        self.entries = kept;
        self
    }
}

/// Leaves the entries up to number `stands`, and of these no call that had not ended by then.
fn keep_up_to(kept: &mut Vec<Entry>, stands: u64) {
    kept.retain(|entry| entry.n <= stands);
    let last_call = kept.iter().rposition(|entry| matches!(entry.event, Event::Call(_)));
    let has_ended = matches!(kept.last().map(|entry| &entry.event), Some(Event::Ending(_)));
    if let (Some(at), false) = (last_call, has_ended) {
        kept.truncate(at);
    }
}

fn empty(name: &str, torn: Option<Torn>) -> ReadError {
    ReadError::Empty {
        file: name.to_owned(),
        torn,
    }
}
