//! The file of interfaces that were given up: whoever detaches them in the cloud reads it.
//!
//! An interface stands here before anything else happens to it, and until it has left the list of interfaces: until then
//! it must not come back to the guest, whatever is restarted meanwhile.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Names of the node's interfaces are for the host's user.
const FILE_MODE: u32 = 0o600;

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Ids, ascending.
    enis: BTreeSet<String>,
}

/// The interfaces that were given up, as the file has them.
#[derive(Debug)]
pub(super) struct Released {
    file: PathBuf,
    written: Written,
}

impl Released {
    /// Reads the file; none there: nothing was given up.
    ///
    /// # Errors
    /// One line: why it can't be read. Without it an interface that is being detached would get pods again, so nothing
    /// goes on without it.
    pub(super) fn load(file: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| {
            format!(
                "the interfaces that were given up can't be read from `{}`: {error}; repair it, or remove it to use every interface of the list again",
                file.display()
            )
        };
        let written = match std::fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| failed(&error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Written::default(),
            Err(error) => return Err(failed(&error)),
        };
        Ok(Self {
            file: file.to_owned(),
            written,
        })
    }

    /// Their ids.
    pub(super) fn ids(&self) -> &BTreeSet<String> {
        &self.written.enis
    }

    /// One more, on disk when this returns.
    ///
    /// # Errors
    /// Where it can't be written; it is not given up then.
    pub(super) fn add(&mut self, id: &str) -> io::Result<()> {
        let mut enis = self.written.enis.clone();
        enis.insert(id.to_owned());
        self.replace(Written { enis })
    }

    /// Forgets those that are not in the list any more.
    ///
    /// # Errors
    /// Where that can't be written; then they stay.
    pub(super) fn keep(&mut self, listed: impl Fn(&str) -> bool) -> io::Result<()> {
        let mut enis = self.written.enis.clone();
        enis.retain(|id| listed(id));
        if enis == self.written.enis {
            return Ok(());
        }
        self.replace(Written { enis })
    }

    fn replace(&mut self, written: Written) -> io::Result<()> {
        let replaced = self.write(&written);
        replaced
            .map_err(|error| io::Error::new(error.kind(), format!("writing `{}`: {error}", self.file.display())))?;
        self.written = written;
        Ok(())
    }

    fn write(&self, written: &Written) -> io::Result<()> {
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut part = self.file.clone().into_os_string();
        part.push(".part");
        // Left behind by a host that was killed, perhaps with another mode.
        match std::fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&part)?;
        out.write_all(&serde_json::to_vec(written)?)?;
        out.write_all(b"\n")?;
        out.sync_all()?;
        std::fs::rename(&part, &self.file)?;
        File::open(folder)?.sync_all()
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
        let mut released = Released::load(&file).unwrap();
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

        let mut released = Released::load(&file).unwrap();
        released.keep(|id| id == "eni-2").unwrap();
        assert_eq!(Vec::from_iter(Released::load(&file).unwrap().ids()), ["eni-2"]);
    }

    #[test]
    fn what_can_t_be_written_was_not_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("released.json");
        let mut released = Released::load(&file).unwrap();
        released.add("eni-1").unwrap();
        // A folder in the way of the file that is written first.
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
            let error = Released::load(&file).unwrap_err();
            assert!(
                error.contains("released.json") && error.contains("repair it"),
                "{error}"
            );
        }
    }
}
