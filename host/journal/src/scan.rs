//! Reads a segment line by line: parses each line, and checks whether it is allowed there. Shared by readers of whole
//! segments and readers of a file that is too large or still growing.

use std::str;

use crate::entry::Entry;
use crate::order::Position;
use crate::reader::{ReadError, Torn};

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
        let entry = parse(text).map_err(|reason| self.damaged(reason))?;
        if let Some(expected) = self.expected.filter(|expected| *expected != entry.n) {
            return Err(self.damaged(format!(
                "entry {} is where entry {expected} belongs: a line is missing, or out of its place",
                entry.n
            )));
        }
        let is_header = self.expected.is_none();
        self.position = self.position.then(entry.kind()).map_err(|reason| {
            self.damaged(if is_header {
                reason.to_owned()
            } else {
                format!("{reason} (entry {})", entry.n)
            })
        })?;
        self.expected = Some(entry.n.saturating_add(1));
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

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    fn damaged(&self, reason: String) -> ReadError {
        ReadError::Damaged {
            file: self.name.clone(),
            line: self.lines,
            reason,
        }
    }
}

fn parse(text: &[u8]) -> Result<Entry, String> {
    let text = str::from_utf8(text).map_err(|error| format!("not UTF-8 from column {} on", error.valid_up_to() + 1))?;
    Entry::parse(text)
}
