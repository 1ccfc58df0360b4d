//! Reads a recording into its index and continues as it grows: in one pass, piece by piece, so that the page can show
//! the part already read.
//!
//! It keeps one line and one piece of entries in memory. An error in a file is noted as the reader reports it, and ends
//! the reading of that file only.

use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::RwLock;
use trueup_base::regular;
use trueup_journal::{ReadError, Scan};

use super::index::{Index, Located, Segment};

/// How much of a file is read before the index is released to others.
const PIECE_BYTES: u64 = 256 << 10;

/// The maximum length of a line: a header whose escaped state fills an instance's memory.
pub(super) const LINE_BYTES_MAX: u64 = 512 << 20;

/// The reader of one recording.
#[derive(Debug, Default)]
pub(super) struct Growth {
    files: Vec<Followed>,
}

/// One file, and how much of it was read.
#[derive(Debug)]
struct Followed {
    path: PathBuf,
    /// Device and inode: they distinguish another file with the same name.
    identity: (u64, u64),
    /// Bytes of complete lines.
    read: u64,
    scan: Scan,
    /// Whether the rest is unreadable.
    is_damaged: bool,
}

impl Growth {
    /// Reads the new content of these files. Locks the index only briefly.
    pub(super) fn advance(&mut self, files: &[PathBuf], index: &RwLock<Index>) {
        self.keep(files, index);
        {
            let metadata = files.iter().filter_map(|file| std::fs::metadata(file).ok());
            let mut index = index.write();
            index.size = metadata.map(|metadata| metadata.len()).sum();
            index.is_read = false;
        }
        // Of the known files, only the newest may have grown.
        let from = self.files.len().saturating_sub(1);
        for (at, path) in files.iter().enumerate().skip(from) {
            if at >= self.files.len() {
                self.files.push(Followed::new(path));
                index.write().segments.push(Segment {
                    path: path.clone(),
                    ..Segment::default()
                });
            }
            let Some(followed) = self.files.get_mut(at) else { break };
            followed.advance(index);
            if index.read().is_full {
                break;
            }
        }
        index.write().is_read = true;
    }

    /// Forgets removed files, or everything if the change was of another kind.
    fn keep(&mut self, files: &[PathBuf], index: &RwLock<Index>) {
        let is_first = |known: &Followed| Some(&known.path) == files.first();
        let gone = self.files.iter().position(is_first).unwrap_or(0);
        let mut stay = self.files.iter().skip(gone).zip(files);
        let same = self.files.len().saturating_sub(gone) <= files.len()
            && stay.all(|(known, path)| known.path == *path && known.is_same());
        if !same {
            self.files.clear();
            index.write().forget_all();
        } else if gone > 0 {
            self.files.drain(..gone);
            index.write().forget_segments(gone);
        }
    }
}

impl Followed {
    fn new(path: &Path) -> Self {
        let metadata = std::fs::metadata(path);
        Self {
            path: path.to_owned(),
            identity: metadata.map_or_else(|_| (0, 0), |metadata| (metadata.dev(), metadata.ino())),
            read: 0,
            scan: Scan::new(&path.display().to_string()),
            is_damaged: false,
        }
    }

    /// Whether it is still the same unmodified file.
    fn is_same(&self) -> bool {
        let metadata = std::fs::metadata(&self.path);
        metadata.is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity && metadata.len() >= self.read)
    }

    /// Reads entries into the index, and notes what is wrong with the file.
    fn advance(&mut self, index: &RwLock<Index>) {
        if self.is_damaged {
            return;
        }
        let note = self.read_on(index).unwrap_or_else(|error| {
            self.is_damaged = matches!(error, ReadError::Damaged { .. });
            // The error and its causes.
            Some(format!("{:#}", anyhow::Error::from(error)))
        });
        if let Some(segment) = index.write().segments.last_mut() {
            segment.note = note;
        }
    }

    /// Reads to the end of the file, or until the index is full. Returns what is to be noted if the file is readable.
    fn read_on(&mut self, index: &RwLock<Index>) -> Result<Option<String>, ReadError> {
        let file = self.path.display();
        let failed = |source: io::Error| ReadError::Io {
            file: file.to_string(),
            source,
        };
        let mut opened = regular::open(&self.path).map_err(failed)?;
        opened.seek(SeekFrom::Start(self.read)).map_err(failed)?;
        let mut reader = BufReader::with_capacity(1 << 20, opened);
        let mut line = Vec::new();
        let mut piece = Vec::new();
        let mut begun = self.read;
        let ended = loop {
            if self.read - begun >= PIECE_BYTES {
                begun = self.read;
                let mut index = index.write();
                piece.drain(..).for_each(|located| index.take(located));
                if index.is_full {
                    // What was noted before stays.
                    return Ok(index.segments.last().and_then(|segment| segment.note.clone()));
                }
            }
            line.clear();
            let bytes = match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) => break Ok((self.read == 0).then(|| format!("`{file}` holds no entry yet"))),
                Ok(bytes) => bytes as u64,
                Err(error) => break Err(failed(error)),
            };
            let Some(text) = line.strip_suffix(b"\n") else {
                break Ok(Some(self.scan.torn(bytes).to_string()));
            };
            // A damaged line must not count as read twice: nothing after it is read.
            let offset = self.read;
            match self.scan.line(text) {
                Ok(entry) => piece.push(Located { entry, offset, bytes }),
                Err(error) => break Err(error),
            }
            self.read += bytes;
        };
        let mut index = index.write();
        piece.into_iter().for_each(|located| index.take(located));
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    use super::*;

    fn header(n: u64, version: &str) -> String {
        format!(
            r#"{{"n":{n},"header":{{"format":1,"guest":"g","version":"{version}","digest":"sha256:{version}","world":"w","host":"0","settings":{{}},"limits":{{}}}}}}"#
        ) + "\n"
    }

    fn call(n: u64) -> String {
        format!(
            "{{\"n\":{n},\"at_ms\":{n},\"call\":\"a.b\",\"args\":{{}}}}\n{{\"n\":{},\"result\":null}}\n",
            n + 1
        )
    }

    fn append(file: &Path, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn numbers(index: &RwLock<Index>) -> Vec<u64> {
        index.read().decisions.iter().map(|decision| decision.n).collect()
    }

    #[test]
    fn a_file_that_grows_is_read_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("0.jsonl");
        append(&file, &(header(0, "1") + &call(1)));
        let (mut growth, index) = (Growth::default(), RwLock::new(Index::of_at_most(10)));
        growth.advance(std::slice::from_ref(&file), &index);
        assert_eq!(numbers(&index), [1]);
        let (whole, half) = (call(3), call(5));
        append(&file, &(whole + &half[..20]));
        growth.advance(std::slice::from_ref(&file), &index);
        assert_eq!(numbers(&index), [1, 3]);
        let torn = index.read().segments[0].note.clone().unwrap();
        assert!(torn.ends_with("line 6 is torn: its 20 bytes are left out"), "{torn}");
        append(&file, &half[20..]);
        growth.advance(std::slice::from_ref(&file), &index);
        assert_eq!(numbers(&index), [1, 3, 5]);
        let index = index.read();
        assert_eq!((index.generation, &index.segments[0].note), (0, &None));
        assert_eq!(index.read, index.size);
    }

    #[test]
    fn segments_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        append(&file("0.jsonl"), &(header(0, "1") + &call(1)));
        append(&file("3.jsonl"), &(header(3, "2") + &call(4)));
        let (mut growth, index) = (Growth::default(), RwLock::new(Index::of_at_most(10)));
        growth.advance(&[file("0.jsonl"), file("3.jsonl")], &index);
        assert_eq!(numbers(&index), [1, 4]);
        let twin = {
            let index = index.read();
            index.twin(&index.decisions[0]).map(|twin| twin.n)
        };
        assert_eq!(twin, Some(4), "asked the same, decided by another version");
        append(&file("6.jsonl"), &(header(6, "2") + &call(7)));
        growth.advance(&[file("3.jsonl"), file("6.jsonl")], &index);
        assert_eq!(numbers(&index), [4, 7]);
        assert_eq!(index.read().generation, 1);
    }

    #[test]
    fn a_file_that_was_replaced_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("0.jsonl");
        append(&file, &(header(0, "1") + &call(1) + &call(3)));
        let (mut growth, index) = (Growth::default(), RwLock::new(Index::of_at_most(10)));
        growth.advance(std::slice::from_ref(&file), &index);
        fs::write(&file, header(0, "1") + &call(1)).unwrap();
        growth.advance(&[file], &index);
        assert_eq!(numbers(&index), [1]);
        assert_eq!(index.read().generation, 1);
    }

    #[test]
    fn damage_ends_one_file_and_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        append(
            &file("0.jsonl"),
            &(header(0, "1") + &call(1) + "{\"n\":9,\"result\":1}\n" + &call(3)),
        );
        append(&file("9.jsonl"), &(header(9, "1") + &call(10)));
        let (mut growth, index) = (Growth::default(), RwLock::new(Index::of_at_most(10)));
        for _ in 0..2 {
            growth.advance(&[file("0.jsonl"), file("9.jsonl")], &index);
            assert_eq!(numbers(&index), [1, 10]);
            let note = index.read().segments[0].note.clone().unwrap();
            assert!(
                note.ends_with(
                    "line 4 is damaged: entry 9 is where entry 3 belongs: a line is missing, or out of its place"
                ),
                "{note}"
            );
        }
    }
}
