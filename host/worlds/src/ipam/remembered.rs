//! A file with everything that the guest got. An address that left the list while a pod uses it must be there when
//! the guest reads the store after a restart. Otherwise the reading takes the pod's allocation for a stale one, and
//! another pod gets its address.
//!
//! The file has at least what the guest has. More is harmless: what is not listed is removed again when no pod uses
//! it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use trueup_sources::enis::Enis;

use super::enis::{Addition, Inventory};
use super::state_file::StateFile;

/// The interfaces and addresses that the guest got, as in the file.
#[derive(Debug)]
pub(super) struct Remembered {
    file: StateFile,
    written: Inventory,
}

impl Remembered {
    /// The path of an instance's file.
    pub(super) fn path(state_dir: &Path, instance: &str) -> PathBuf {
        state_dir.join("ipam").join(format!("{instance}.json"))
    }

    /// Reads the file, without the interfaces `given_up`. A missing file means that the guest never got
    /// anything. In a plan, changes stay in memory.
    ///
    /// # Errors
    /// One line: why it can't be read. Without it the guest could assign addresses that pods still use, so the host
    /// does not go on.
    pub(super) fn load(path: PathBuf, plans: bool, given_up: &BTreeSet<String>) -> Result<Self, String> {
        let file = StateFile::new(path, plans);
        let enis = file.read::<Enis>().map_err(|error| {
            format!(
                "the interfaces that pods may still use can't be read from `{}`: {error}; repair it, or remove it where every address that a pod uses is in the list of interfaces",
                file.path().display()
            )
        })?;
        Ok(Self {
            file,
            written: Inventory::wanted(&enis.unwrap_or_default(), given_up),
        })
    }

    /// Everything that is remembered.
    pub(super) fn inventory(&self) -> &Inventory {
        &self.written
    }

    /// Adds what the guest is about to get. It is on disk when this returns.
    ///
    /// # Errors
    /// If it can't be written. The guest must then not get it.
    pub(super) fn add(&mut self, additions: &[Addition]) -> std::io::Result<()> {
        if additions.iter().all(|addition| self.written.contains(addition)) {
            return Ok(());
        }
        let mut next = self.written.clone();
        for addition in additions {
            next.put(addition);
        }
        self.replace(next)
    }

    /// Forgets what the guest no longer has. The guest's writes about pods there must already be durable.
    ///
    /// # Errors
    /// If it can't be written. It is then remembered for longer.
    pub(super) fn forget_all_but(&mut self, has: &Inventory) -> std::io::Result<()> {
        self.replace(has.clone())
    }

    fn replace(&mut self, next: Inventory) -> std::io::Result<()> {
        self.file.replace(&next.list())?;
        self.written = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::guest::{AddAddress, AddEni};

    fn load(file: &Path) -> Result<Remembered, String> {
        Remembered::load(file.to_owned(), false, &BTreeSet::new())
    }

    fn eni(id: &str, device_number: i32) -> Addition {
        Addition::Eni(AddEni {
            eni_id: id.to_owned(),
            device_number,
            is_primary: false,
            is_trunk: true,
        })
    }

    fn address(id: &str, ip: &str) -> Addition {
        Addition::Address(AddAddress {
            eni_id: id.to_owned(),
            ipv4: ip.to_owned(),
        })
    }

    #[test]
    fn what_was_given_is_there_after_a_restart_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let file = Remembered::path(dir.path(), "pods");
        assert!(file.ends_with("ipam/pods.json"));
        let mut remembered = load(&file).unwrap();
        assert_eq!(remembered.inventory(), &Inventory::default());
        remembered.add(&[]).unwrap();
        assert!(!file.exists(), "nothing is written before there is something");
        let given = [
            eni("b", 1),
            address("b", "10.0.0.2"),
            address("b", "10.0.0.3"),
            eni("a", 0),
        ];
        remembered.add(&given).unwrap();
        let loaded = load(&file).unwrap();
        assert_eq!(loaded.inventory(), remembered.inventory());
        assert!(given.iter().all(|addition| loaded.inventory().contains(addition)));

        // An address that moved, and an interface that was added again with other traits.
        remembered.add(&[eni("a", 5), address("a", "10.0.0.2")]).unwrap();
        let mut has = Inventory::default();
        for addition in [
            eni("a", 5),
            address("a", "10.0.0.2"),
            eni("b", 1),
            address("b", "10.0.0.3"),
        ] {
            has.put(&addition);
        }
        assert_eq!(load(&file).unwrap().inventory(), &has);
        let given_up = BTreeSet::from(["b".to_owned()]);
        has.remove_eni("b");
        assert_eq!(
            Remembered::load(file.clone(), false, &given_up).unwrap().inventory(),
            &has
        );
        remembered.forget_all_but(&has).unwrap();
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "{\"enis\":[{\"id\":\"a\",\"device_number\":5,\"is_primary\":false,\"is_trunk\":true,\"addresses\":[\"10.0.0.2\"]}]}\n"
        );
    }

    #[test]
    fn what_can_t_be_written_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let file = Remembered::path(dir.path(), "pods");
        std::fs::write(dir.path().join("ipam"), "no folder").unwrap();
        let mut remembered = Remembered {
            file: StateFile::new(file, false),
            written: Inventory::default(),
        };
        let error = remembered.add(&[eni("a", 0)]).unwrap_err().to_string();
        assert!(error.starts_with("writing `"), "{error}");
        assert_eq!(remembered.inventory(), &Inventory::default());
    }

    #[test]
    fn a_damaged_file_is_an_error_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pods.json");
        for text in ["", "{", "[]", r#"{"enis":[1]}"#, r#"{"enis":[],"more":1}"#] {
            std::fs::write(&file, text).unwrap();
            let error = load(&file).unwrap_err();
            assert!(error.contains("pods.json") && error.contains("repair it"), "{error}");
        }
    }
}
