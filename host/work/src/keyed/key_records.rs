//! What is remembered of each key over restarts: one file per key, so that the cost of one key does not depend on the
//! number of keys.
//!
//! ```text
//! state_dir/keys/GUEST/<key>.json
//! ```

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::files;
use crate::setup::SetupError;

/// What is remembered of one key: the format of its file, which names the key.
pub trait KeyRecord: Serialize + DeserializeOwned + PartialEq {
    /// The key. Its text is what the file holds.
    type Key: Ord + Clone + std::fmt::Display + FromStr<Err: std::fmt::Display>;
    /// What a damaged file said, for the operator who is to repair it.
    const SAYS: &'static str;
    /// The key, as the file has it.
    fn key(&self) -> &str;
}

/// The records of all keys of one guest, in memory and on disk.
#[derive(Debug)]
pub struct KeyRecords<R: KeyRecord> {
    folder: PathBuf,
    by_key: BTreeMap<R::Key, R>,
    /// Changes stay in memory.
    is_unwritten: bool,
}

impl<R: KeyRecord> KeyRecords<R> {
    /// The records of a guest in a state folder. In a plan, changes stay in memory.
    ///
    /// # Errors
    /// As [`KeyRecords::load`].
    pub fn open(state_dir: &Path, guest: &str, plans: bool) -> Result<Self, SetupError> {
        let known = Self::load(&state_dir.join("keys").join(guest));
        let mut known = known.map_err(|error| SetupError::Misused(format!("reading the known keys: {error}")))?;
        known.is_unwritten = plans;
        Ok(known)
    }

    /// Reads the records in `folder`. Empty if the folder does not exist yet.
    ///
    /// # Errors
    /// If a file can't be read. The error names it. Nothing is guessed: a key that is not known is never cleaned up.
    pub fn load(folder: &Path) -> io::Result<Self> {
        let mut known = Self {
            folder: folder.to_owned(),
            by_key: BTreeMap::new(),
            is_unwritten: false,
        };
        for file in files::json_files(folder).map_err(|error| named(folder, &error))? {
            let damaged =
                |error: &dyn std::fmt::Display| named(&file, &format!("{error}; repair it: it says {}", R::SAYS));
            let Some(read) = files::read_sealed::<R>(&file).map_err(|error| damaged(&error))? else {
                continue;
            };
            let key = read.key().parse().map_err(|error| damaged(&error))?;
            known.by_key.insert(key, read);
        }
        Ok(known)
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &R::Key> {
        self.by_key.keys()
    }

    /// The keys in a range.
    pub fn range(&self, keys: impl RangeBounds<R::Key>) -> impl Iterator<Item = &R::Key> {
        self.by_key.range(keys).map(|(key, _)| key)
    }

    /// The record of a key. `None` if it is not known.
    pub fn get(&self, key: &R::Key) -> Option<&R> {
        self.by_key.get(key)
    }

    /// Replaces the record of a key, unless it is the same. It is on disk before this returns.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn put(&mut self, key: &R::Key, record: R) -> io::Result<()> {
        if self.get(key) == Some(&record) {
            return Ok(());
        }
        if !self.is_unwritten {
            files::replace_sealed(&self.file(key), &record)?;
        }
        self.by_key.insert(key.clone(), record);
        Ok(())
    }

    /// Removes the record of a key, if there is one.
    ///
    /// # Errors
    /// If the file can't be removed.
    pub fn remove(&mut self, key: &R::Key) -> io::Result<()> {
        if self.by_key.contains_key(key) {
            if !self.is_unwritten {
                files::remove(&self.file(key))?;
            }
            self.by_key.remove(key);
        }
        Ok(())
    }

    /// The file of `key`.
    pub fn file(&self, key: &R::Key) -> PathBuf {
        let name = trueup_journal::path_component(&key.to_string());
        self.folder.join(format!("{name}.json"))
    }
}

/// The same error, with the name of the file.
pub fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
