//! The end of an audit log: chains lines and appends them.
//!
//! A durable line, and all before it, are on the disk when it is written, and then `head` counts them. Others are with
//! the operating system, and reach the disk with the next sync: `head` is behind them until then, and never ahead.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use trueup_base::replace::Durable;

use super::error::{AuditError, failed};
use super::head::{self, Head};
use super::line::{Kind, Line};
use super::segment::Open;

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
        self.head = Head {
            lines: line.n + 1,
            hash: line.hash,
        };
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
            tracing::warn!("can't write `{}`: {error}", self.folder.join(head::NAME).display());
        }
    }
}
