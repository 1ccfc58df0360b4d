//! Lists the recordings of a guest newest first, whatever their key, and opens none.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::PathBuf;

use trueup_base::regular;
use trueup_journal::{JournalError, ReadError, Segment, key_of, segment_numbers, segment_path};

/// The maximum number of keys per folder; recordings of further keys are not found. A cluster has 10,000 services at
/// most.
const KEYS_MAX: usize = 100_000;

/// A recording.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) key: String,
    pub(super) path: PathBuf,
}

/// All recordings in a guest's folders, each of which holds a folder for each key, by the files' time and then by name.
/// A missing folder is empty. `keep_total_bytes` limits their number.
pub(super) fn newest(folders: &[PathBuf]) -> Result<impl Iterator<Item = Found>, JournalError> {
    let mut all = Vec::new();
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
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let numbers = match segment_numbers(&entry.path()) {
                // The key was forgotten meanwhile.
                Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
                numbers => numbers?,
            };
            let component = entry.file_name().to_string_lossy().into_owned();
            // A long key is known only by its folder.
            let key = key_of(&component).unwrap_or(component);
            for path in numbers.into_iter().map(|first| segment_path(&entry.path(), first)) {
                // A missing file was removed as too old.
                if let Ok(modified) = fs::metadata(&path).and_then(|file| file.modified()) {
                    all.push((modified, Found { key: key.clone(), path }));
                }
            }
        }
    }
    all.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.path.cmp(&other.path)));
    Ok(all.into_iter().map(|(_, found)| found))
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
    use std::time::{Duration, SystemTime};

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
        let order = newest(&folders).unwrap().map(|found| {
            let file = found.path.file_name().unwrap().to_string_lossy().into_owned();
            format!("{} {file}", found.key)
        });
        assert_eq!(
            order.collect::<Vec<_>>(),
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
