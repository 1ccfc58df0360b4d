//! Small files of the host's own: each read whole, and replaced whole.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use trueup_base::regular;
use trueup_base::replace::{Durable, replace_file};

/// A JSON document in a file.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// It is never written: this is a plan.
    is_unwritten: bool,
}

impl StateFile {
    /// In a plan the file is never written.
    pub(super) fn new(path: PathBuf, plans: bool) -> Self {
        Self {
            path,
            is_unwritten: plans,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The contents of the file. `None` if it does not exist.
    ///
    /// # Errors
    /// If it can't be read, is too long, is not a regular file, or holds something else.
    pub(super) fn read<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let text = read(&self.path, regular::LIST)?;
        Ok(text.map(|text| serde_json::from_slice(&text)).transpose()?)
    }

    /// Replaces the file's contents. Whenever the host is killed, the file has the old or the new contents.
    ///
    /// # Errors
    /// If the file still has the old contents.
    pub(super) fn replace(&self, value: &impl Serialize) -> io::Result<()> {
        if self.is_unwritten {
            return Ok(());
        }
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        let replaced = replace_file(&self.path, &text, Durable::Yes);
        replaced.map_err(|error| io::Error::new(error.kind(), format!("writing `{}`: {error}", self.path.display())))
    }
}

/// The bytes of a file. `None` if it does not exist.
///
/// # Errors
/// If it can't be read, is longer than `bytes_max`, or is not a regular file.
pub(super) fn read(file: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    match regular::read(file, bytes_max) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_there_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::new(dir.path().join("one/two.json"), false);
        assert_eq!(file.read::<String>().unwrap(), None);
        for text in ["first", "2"] {
            file.replace(&text).unwrap();
            assert_eq!(file.read::<String>().unwrap().as_deref(), Some(text));
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), format!("{text:?}\n"));
        }
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        assert!(StateFile::new(dir.path().to_owned(), false).read::<String>().is_err());
    }
}
