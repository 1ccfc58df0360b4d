//! Finds recordings newest first, whatever their key, and opens none before the caller asks for it.
//!
//! Lists the folder once. Looks only at the newest file of each key, and at the one before it when that one is taken.
//! Finding N recordings therefore costs one look at each key, and N more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trueup_base::regular;
use trueup_journal::{JournalError, ReadError, Segment, key_of, segment_numbers, segment_path};

/// The maximum number of keys per folder; recordings of further keys are not found. A cluster has 10,000 services at
/// most.
const KEYS_MAX: usize = 100_000;

/// Recordings of all keys of one guest, newest first by the files' time, then by name.
#[derive(Debug, Default)]
pub(super) struct Newest {
    keys: Vec<Key>,
    /// The newest recording of each key that was not returned yet.
    heads: BinaryHeap<(SystemTime, Reverse<PathBuf>, usize)>,
}

#[derive(Debug)]
struct Key {
    name: String,
    folder: PathBuf,
    /// Oldest first, without those that were returned or are a head.
    left: Vec<u64>,
}

/// A recording.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) key: String,
    pub(super) path: PathBuf,
}

impl Newest {
    /// Lists a guest's folders, each of which holds a folder for each key. A missing folder is empty.
    pub(super) fn list(folders: &[PathBuf]) -> Result<Self, JournalError> {
        let mut newest = Self::default();
        for folder in folders {
            let failed = |source| JournalError::Io {
                tried: "list",
                path: folder.clone(),
                source,
            };
            let entries = match fs::read_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(failed)?,
            };
            for entry in entries.take(KEYS_MAX) {
                let entry = entry.map_err(failed)?;
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    newest.add(&entry.path())?;
                }
            }
        }
        Ok(newest)
    }

    fn add(&mut self, folder: &Path) -> Result<(), JournalError> {
        let left = match segment_numbers(folder) {
            // The key was forgotten meanwhile.
            Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            left => left?,
        };
        let component = folder.file_name().unwrap_or_default().to_string_lossy();
        self.keys.push(Key {
            // A long key is known only by its folder.
            name: key_of(&component).unwrap_or_else(|| component.into_owned()),
            folder: folder.to_owned(),
            left,
        });
        self.advance(self.keys.len() - 1);
        Ok(())
    }

    /// Queues the newest remaining file of the key.
    fn advance(&mut self, at: usize) {
        let Some(key) = self.keys.get_mut(at) else { return };
        while let Some(first) = key.left.pop() {
            let path = segment_path(&key.folder, first);
            // A missing file was removed as too old.
            if let Ok(modified) = fs::metadata(&path).and_then(|file| file.modified()) {
                self.heads.push((modified, Reverse(path), at));
                return;
            }
        }
    }

    pub(super) fn next(&mut self) -> Option<Found> {
        let (_, Reverse(path), at) = self.heads.pop()?;
        self.advance(at);
        let key = self.keys.get(at)?.name.clone();
        Some(Found { key, path })
    }
}

impl Found {
    /// The recording, if a guest of this digest made it. Otherwise reads only the header.
    pub(super) fn read_if_by(&self, digest: &str) -> Result<Option<Segment>, ReadError> {
        let name = self.path.display().to_string();
        let failed = |source| ReadError::Io {
            file: name.clone(),
            source,
        };
        let mut reader = BufReader::new(regular::open(&self.path).map_err(failed)?);
        let mut bytes = Vec::new();
        reader.read_until(b'\n', &mut bytes).map_err(failed)?;
        if Segment::from_bytes(&name, &bytes)?.header.digest != digest {
            return Ok(None);
        }
        reader.read_to_end(&mut bytes).map_err(failed)?;
        Segment::from_bytes(&name, &bytes).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn recordings_come_newest_first_over_all_keys() {
        let dir = tempfile::tempdir().unwrap();
        let write = |key: &str, first: u64, seconds: u64| {
            let path = segment_path(&dir.path().join("journals").join(key), first);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = fs::File::create(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
                .unwrap();
        };
        write("b", 0, 10);
        write("b", 100, 40);
        write("default%2Fa", 0, 20);
        write("default%2Fa", 90, 30);
        write("c", 7, 30);
        fs::write(dir.path().join("journals/c/notes.txt"), "").unwrap();
        fs::write(dir.path().join("journals/stray"), "").unwrap();
        let folders = [dir.path().join("journals"), dir.path().join("not there")];
        let mut newest = Newest::list(&folders).unwrap();
        let mut order = Vec::new();
        while let Some(found) = newest.next() {
            let file = found.path.file_name().unwrap().to_string_lossy().into_owned();
            order.push(format!("{} {file}", found.key));
        }
        assert_eq!(
            order,
            [
                "b 100.jsonl",
                "c 7.jsonl",
                "default/a 90.jsonl",
                "default/a 0.jsonl",
                "b 0.jsonl"
            ]
        );
    }
}
