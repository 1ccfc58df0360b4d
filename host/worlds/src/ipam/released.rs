//! The file of interfaces that were given up. The operator reads it to detach them in the cloud.
//!
//! An interface is listed once the guest has let go of it and that is durable, before its event, until it has left
//! the list of interfaces. Until then the guest must not get it back, whatever is restarted meanwhile.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::state_file::StateFile;

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The ids, ascending.
    enis: BTreeSet<String>,
}

/// The interfaces that were given up, as in the file.
#[derive(Debug)]
pub(super) struct Released {
    file: StateFile,
    written: Written,
}

impl Released {
    /// Reads the file. A missing file means that nothing was given up. In a plan, changes stay in memory.
    ///
    /// # Errors
    /// One line: why it can't be read. Without it an interface that is being detached would get pods again, so the
    /// host does not go on.
    pub(super) fn load(file: &Path, plans: bool) -> Result<Self, String> {
        let file = StateFile::new(file.to_owned(), plans);
        let written = file.read().map_err(|error| {
            format!(
                "the interfaces that were given up can't be read from `{}`: {error}; repair it, or remove it to use every interface of the list again",
                file.path().display()
            )
        })?;
        Ok(Self {
            file,
            written: written.unwrap_or_default(),
        })
    }

    /// Their ids.
    pub(super) fn ids(&self) -> &BTreeSet<String> {
        &self.written.enis
    }

    /// Adds one. It is on disk when this returns.
    ///
    /// # Errors
    /// If it can't be written. It is then not given up.
    pub(super) fn add(&mut self, id: &str) -> io::Result<()> {
        let mut enis = self.written.enis.clone();
        enis.insert(id.to_owned());
        self.replace(Written { enis })
    }

    /// Forgets those that are no longer in the list.
    ///
    /// # Errors
    /// If that can't be written. They then remain.
    pub(super) fn keep(&mut self, listed: impl Fn(&str) -> bool) -> io::Result<()> {
        let mut enis = self.written.enis.clone();
        enis.retain(|id| listed(id));
        if enis == self.written.enis {
            return Ok(());
        }
        self.replace(Written { enis })
    }

    fn replace(&mut self, written: Written) -> io::Result<()> {
        self.file.replace(&written)?;
        self.written = written;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_was_given_up_is_there_after_a_restart_until_it_leaves_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/released.json");
        let mut released = Released::load(&file, false).unwrap();
        assert!(released.ids().is_empty());
        assert!(!file.exists(), "nothing is written before there is something");
        released.add("eni-2").unwrap();
        released.add("eni-1").unwrap();
        released.add("eni-1").unwrap();
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "{\"enis\":[\"eni-1\",\"eni-2\"]}\n"
        );
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        let mut released = Released::load(&file, false).unwrap();
        released.keep(|id| id == "eni-2").unwrap();
        assert_eq!(Vec::from_iter(Released::load(&file, false).unwrap().ids()), ["eni-2"]);
    }

    #[test]
    fn what_can_t_be_written_was_not_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("released.json");
        let mut released = Released::load(&file, false).unwrap();
        released.add("eni-1").unwrap();
        // A folder in the way of the temporary file.
        std::fs::create_dir_all(dir.path().join("released.json.part/full")).unwrap();
        let error = released.add("eni-2").unwrap_err().to_string();
        assert!(error.starts_with("writing `"), "{error}");
        assert_eq!(Vec::from_iter(released.ids()), ["eni-1"]);
    }

    #[test]
    fn a_damaged_file_is_an_error_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("released.json");
        for text in ["", "{", "[]", r#"{"enis":[1]}"#, r#"{"enis":[],"more":1}"#] {
            std::fs::write(&file, text).unwrap();
            let error = Released::load(&file, false).unwrap_err();
            assert!(
                error.contains("released.json") && error.contains("repair it"),
                "{error}"
            );
        }
    }
}
