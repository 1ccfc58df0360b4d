//! The file `head`: the number of lines, and the hash of the last one.
//!
//! A hash chain does not detect that its end is missing; this file does. The host overwrites it in place after each
//! line is on the disk. After a crash it may be behind the log, but never ahead of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::line::NO_HASH;
use trueup_base::regular;

/// The file's name.
pub(super) const NAME: &str = "head";

/// Number of digits: enough for any 64-bit number, so that every head has the same length.
const DIGITS: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// The number of lines.
    pub(super) lines: u64,
    /// The hash of the last one.
    pub(super) hash: String,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            lines: 0,
            hash: NO_HASH.to_owned(),
        }
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
    pub(super) fn read(folder: &Path) -> io::Result<Option<Result<Self, String>>> {
        match regular::read(&folder.join(NAME), regular::SMALL) {
            Ok(bytes) => {
                Ok(Some(Self::parse(&bytes).ok_or_else(|| {
                    "is not a number of lines and the hash of the last one".to_owned()
                })))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (lines, hash) = text.strip_suffix('\n')?.split_once(' ')?;
        let head = Self {
            lines: lines.parse().ok()?,
            hash: hash.to_owned(),
        };
        // Each head has exactly one valid spelling.
        (head.text() == text && hash.len() == NO_HASH.len()).then_some(head)
    }
}
