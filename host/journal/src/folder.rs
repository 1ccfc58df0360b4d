//! A journal's folder on the disk: its segment files, and the operations on them that must not fail halfway.
//!
//! Knows names and bytes; `reader.rs` and `writer.rs` know the content of segments.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use trueup_base::{regular, replace};

use crate::writer::JournalError;

const EXTENSION: &str = ".jsonl";

/// One file of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    /// Number of its header's entry, from the file name.
    pub first: u64,
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// The segments in a journal's folder, oldest first. Skips files with other names, which do not belong to the journal.
pub fn segment_files(dir: &Path) -> Result<Vec<SegmentFile>, JournalError> {
    let with_size = |first| {
        let path = segment_path(dir, first);
        let bytes = fs::metadata(&path).map_err(failed("look at", &path))?.len();
        Ok(SegmentFile { first, path, bytes })
    };
    segment_numbers(dir)?.into_iter().map(with_size).collect()
}

/// The segments in a journal's folder by name alone, oldest first: the numbers of their headers' entries. For readers
/// of a journal that is being written, while its segments come and go.
pub fn segment_numbers(dir: &Path) -> Result<Vec<u64>, JournalError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed("list", dir))? {
        let name = entry.map_err(failed("list", dir))?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(EXTENSION));
        let first = stem.and_then(|stem| stem.parse().ok().filter(|first: &u64| first.to_string() == stem));
        found.extend(first);
    }
    found.sort_unstable();
    Ok(found)
}

/// The file of the segment that begins with entry `first`.
pub fn segment_path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first}{EXTENSION}"))
}

pub(crate) fn failed(tried: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError::Io {
        tried,
        path: path.to_owned(),
        source,
    }
}

/// Writes a line, or restores the previous content as well as possible. The first error counts: the journal stops with
/// it. What could not be restored is a torn line, which is cut off when the journal is opened next.
pub(crate) fn write_whole(to: &mut impl Write, line: &[u8], undo: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    to.write_all(line).inspect_err(|_| {
        let _ = undo();
    })
}

pub(crate) fn truncate(path: &Path, bytes: u64) -> Result<(), JournalError> {
    let cut = |file: File| file.set_len(bytes).and_then(|()| file.sync_all());
    let opened = regular::open_own(OpenOptions::new().write(true), path);
    opened.and_then(cut).map_err(failed("cut the torn end off", path))
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    replace::sync_folder(dir).map_err(failed("sync", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes three bytes, then the device is full.
    struct Full(Vec<u8>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.len() >= 3 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.extend(bytes.iter().take(3));
            Ok(bytes.len().min(3))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_written_in_part_is_taken_back() {
        let mut file = Full(Vec::new());
        let mut restored = false;
        let error = write_whole(&mut file, b"abcdef", || {
            restored = true;
            Err(io::ErrorKind::Other.into())
        });
        assert_eq!(
            error.expect_err("full").kind(),
            io::ErrorKind::StorageFull,
            "the first error counts"
        );
        assert!(restored && file.0 == b"abc");
        write_whole(&mut Vec::new(), b"abcdef", || panic!("nothing to restore")).unwrap();
    }
}
