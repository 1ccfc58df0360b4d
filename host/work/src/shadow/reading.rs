//! A segment of a recording that grows while it is read.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use trueup_base::regular;
use trueup_engine::Digest;
use trueup_instance::with_causes;
use trueup_journal::{Entry, Event, Header, Scan, segment_numbers, segment_path};

/// The maximum bytes that are read at once: the calls of a service of 100 ports x 100 servers take 10 MiB. The shadow
/// passes over a longer call, so that the host need not hold it.
const LINES_BYTES_MAX: usize = 16 << 20;

/// A segment that is longer is not kept from call to call: 64 keys have one each.
const KEPT_BYTES_MAX: u64 = 2 << 20;

/// A segment, as far as it is read.
pub(super) struct Reading {
    path: PathBuf,
    scan: Scan,
    /// The bytes of the lines that are read.
    bytes: u64,
    /// The number of its header's entry.
    pub(super) first: u64,
    pub(super) header: Header,
    /// The entries after the header.
    pub(super) entries: Vec<Entry>,
}

impl Reading {
    /// The segment with entry `n` of the recording in `folder`, up to its present end. Goes on with `before` if that is
    /// the same.
    ///
    /// # Errors
    /// One line: it can't be read, it is gone, or a guest other than `by` recorded it.
    pub(super) fn of(folder: &Path, n: u64, before: Option<Self>, by: &Digest) -> Result<Self, String> {
        let numbers = segment_numbers(folder).map_err(with_causes)?;
        let first = numbers.into_iter().rev().find(|first| *first < n);
        let first = first.ok_or("its recording is not kept any more")?;
        let reading = match before.filter(|before| before.first == first) {
            Some(before) => before.go_on()?,
            None => Self::open(segment_path(folder, first), first)?,
        };
        match reading.header.digest == by.to_string() {
            true => Ok(reading),
            false => Err("another version recorded it".to_owned()),
        }
    }

    fn open(path: PathBuf, first: u64) -> Result<Self, String> {
        let mut scan = Scan::new(&path.display().to_string());
        let (entries, bytes) = read(&path, &mut scan, 0)?;
        let mut entries = entries.into_iter();
        let Some(Event::Header(header)) = entries.next().map(|entry| entry.event) else {
            return Err("its recording has no header yet".to_owned());
        };
        Ok(Self {
            path,
            scan,
            bytes,
            first,
            header: *header,
            entries: entries.collect(),
        })
    }

    fn go_on(mut self) -> Result<Self, String> {
        let (entries, bytes) = read(&self.path, &mut self.scan, self.bytes)?;
        self.entries.extend(entries);
        self.bytes = bytes;
        Ok(self)
    }

    /// Whether it is too long to be kept for the next call.
    pub(super) fn is_long(&self) -> bool {
        self.bytes > KEPT_BYTES_MAX
    }

    /// Where the call with entry `n` is among the entries, with its ending. `None` if it has no ending.
    pub(super) fn call(&self, n: u64) -> Option<Range<usize>> {
        let at = self.entries.iter().position(|entry| entry.n == n)?;
        let mut entries = self.entries.get(at..)?.iter();
        let ending = entries.position(|entry| matches!(entry.event, Event::Ending(_)))?;
        Some(at..at + ending + 1)
    }
}

/// The whole lines from byte `from` on, and where they end.
fn read(path: &Path, scan: &mut Scan, from: u64) -> Result<(Vec<Entry>, u64), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = regular::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() < from {
        return Err("another recording took its place".to_owned());
    }
    let mut text = Vec::new();
    let limit = LINES_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut text).map_err(failed)?;
    if text.len() > LINES_BYTES_MAX {
        return Err("it is too long to compare".to_owned());
    }
    let (mut entries, mut bytes) = (Vec::new(), from);
    // The host may be writing the last line.
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    for line in lines.filter_map(|line| line.strip_suffix(b"\n")) {
        entries.push(scan.line(line).map_err(with_causes)?);
        bytes += line.len() as u64 + 1;
    }
    Ok((entries, bytes))
}
