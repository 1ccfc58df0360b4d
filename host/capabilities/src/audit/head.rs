//! The file `head`: how many lines there are, and the hash of the last one.
//!
//! A chain of hashes does not miss its own end; this does. It is overwritten in place after each line, which is on the disk
//! by then, so it may be behind the log after a crash, never ahead of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::line::NO_HASH;
use trueup_journal::regular;

/// The file's name.
pub(super) const NAME: &str = "head";

/// Digits of the number: all that 64 bits need, so that every head is as long as another.
const DIGITS: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// So many lines.
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

    /// Writes it in place: it is shorter than a sector, so that it is there whole or not at all.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        file.write_all_at(self.text().as_bytes(), 0)
    }

    /// Reads it; none where there is none. The inner error says what is wrong with it.
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
        // Every head is spelled in one way.
        (head.text() == text && hash.len() == NO_HASH.len()).then_some(head)
    }
}
