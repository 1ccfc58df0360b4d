//! Small files of the host's own, each read whole, and replaced whole: which interfaces were given up, and at least
//! what the guest got.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trueup_base::regular;
use trueup_base::replace::{Durable, replace_file};
use trueup_sources::enis::Enis;

use super::enis::{Addition, Inventory};

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

    /// As [`StateFile::read`], for a file without which the host does not go on: says `what` it holds, and when to
    /// `remove` it.
    fn require<T: DeserializeOwned>(&self, what: &str, remove: &str) -> Result<Option<T>, String> {
        let read = self.read();
        let path = self.path.display();
        read.map_err(|error| format!("{what} can't be read from `{path}`: {error}; repair it, or remove it {remove}"))
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
        replace_file(&self.path, &text, Durable::Yes).map_err(failed("writing", &self.path))
    }
}

/// Adds what was tried on which file.
pub(super) fn failed(tried: &str, file: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{tried} `{}`: {error}", file.display()))
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

/// The contents of the file of interfaces that were given up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The ids, ascending.
    enis: BTreeSet<String>,
}

/// The interfaces that were given up, as in the file. The operator reads it to detach them in the cloud.
///
/// An interface is listed once the guest has let go of it and that is durable, before its event, until it has left
/// the list of interfaces. Until then the guest must not get it back, whatever is restarted meanwhile.
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
        let what = "the interfaces that were given up";
        let written = file.require(what, "to use every interface of the list again")?;
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
        let mut next = self.written.clone();
        next.enis.insert(id.to_owned());
        self.replace(next)
    }

    /// Forgets those that are no longer in the list.
    ///
    /// # Errors
    /// If that can't be written. They then remain.
    pub(super) fn keep(&mut self, listed: impl Fn(&str) -> bool) -> io::Result<()> {
        let mut next = self.written.clone();
        next.enis.retain(|id| listed(id));
        match next == self.written {
            true => Ok(()),
            false => self.replace(next),
        }
    }

    fn replace(&mut self, next: Written) -> io::Result<()> {
        self.file.replace(&next)?;
        self.written = next;
        Ok(())
    }
}

/// The interfaces and addresses that the guest got, as in the file. An address that left the list while a pod uses it
/// must be there when the guest reads the store after a restart. Otherwise the reading takes the pod's allocation for a
/// stale one, and another pod gets its address.
///
/// The file has at least what the guest has. More is harmless: what is not listed is removed again when no pod uses
/// it.
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
        let what = "the interfaces that pods may still use";
        let remove = "where every address that a pod uses is in the list of interfaces";
        let enis: Enis = file.require(what, remove)?.unwrap_or_default();
        Ok(Self {
            file,
            written: Inventory::wanted(&enis, given_up),
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
    pub(super) fn add(&mut self, additions: &[Addition]) -> io::Result<()> {
        if additions.iter().all(|addition| self.written.contains(addition)) {
            return Ok(());
        }
        let mut next = self.written.clone();
        for addition in additions {
            next.put(addition);
        }
        self.replace(next)
    }

    /// Keeps only this. Where it leaves something out, the guest's writes about pods there must already be durable.
    ///
    /// # Errors
    /// If it can't be written. What was remembered before then still is.
    pub(super) fn replace(&mut self, next: Inventory) -> io::Result<()> {
        self.file.replace(&next.list())?;
        self.written = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::ipam::guest::{AddAddress, AddEni};

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
    fn a_damaged_file_of_given_up_interfaces_says_what_to_do() {
        says_what_to_do_if_damaged("released.json", |file| Released::load(file, false).map(drop));
    }

    fn says_what_to_do_if_damaged(name: &str, load: impl Fn(&Path) -> Result<(), String>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        for text in ["", "{", "[]", r#"{"enis":[1]}"#, r#"{"enis":[],"more":1}"#] {
            std::fs::write(&file, text).unwrap();
            let error = load(&file).unwrap_err();
            assert!(error.contains(name) && error.contains("repair it"), "{error}");
        }
    }

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
        remembered.replace(has).unwrap();
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
    fn a_damaged_file_of_remembered_interfaces_says_what_to_do() {
        says_what_to_do_if_damaged("pods.json", |file| load(file).map(drop));
    }
}
