//! The keys for which this host has created objects: under which UIDs, on which load balancers. The host uses them to
//! clean up after a Service that was deleted while the host was down. One file per key, so that the cost of one
//! Service does not depend on the number of Services.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;

/// Where objects of a key may exist: UID to load balancers.
pub(crate) type Places = BTreeMap<String, BTreeSet<String>>;

/// What is known of one key: the format of its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    key: String,
    uids: Places,
}

/// All known keys of one guest, in memory and on disk.
#[derive(Debug)]
pub struct KnownKeys {
    folder: PathBuf,
    places: BTreeMap<String, Places>,
}

impl KnownKeys {
    /// Reads the keys in `folder`. Empty if the folder does not exist yet.
    ///
    /// # Errors
    /// If a file can't be read. The error names it. Nothing is guessed: a key that is not known is never cleaned up.
    pub fn load(folder: &Path) -> io::Result<Self> {
        let mut known = Self {
            folder: folder.to_owned(),
            places: BTreeMap::new(),
        };
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(known),
            Err(error) => return Err(named(folder, &error)),
        };
        for entry in entries {
            let file = entry.map_err(|error| named(folder, &error))?.path();
            if file.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let read: Option<Known> = files::read_sealed(&file).map_err(|error| {
                let next = "repair it: it says where the objects of a Service are, should that go away";
                named(&file, &format!("{error}; {next}"))
            })?;
            known.places.extend(read.map(|read| (read.key, read.uids)));
        }
        Ok(known)
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// Where objects of `key` may exist.
    pub fn places(&self, key: &str) -> Places {
        self.places.get(key).cloned().unwrap_or_default()
    }

    /// Remembers that objects of `key` may exist under `uid` on `load_balancers`. It is on disk before this returns.
    ///
    /// # Errors
    /// If it can't be written. The caller must then create nothing.
    pub fn remember(&mut self, key: &str, uid: &str, load_balancers: &[String]) -> io::Result<()> {
        let mut places = self.places(key);
        let on = places.entry(uid.to_owned()).or_default();
        let before = on.len();
        on.extend(load_balancers.iter().cloned());
        if on.len() == before && before > 0 {
            return Ok(());
        }
        self.write(key, places)
    }

    /// Forgets that objects of `key` may exist under `uid` on `load_balancers`, since they are gone.
    ///
    /// # Errors
    /// If it can't be written. The host then looks for them once more next time.
    pub fn forget(&mut self, key: &str, uid: &str, load_balancers: &[String]) -> io::Result<()> {
        let mut places = self.places(key);
        let Some(on) = places.get_mut(uid) else { return Ok(()) };
        on.retain(|identifier| !load_balancers.contains(identifier));
        if on.is_empty() {
            places.remove(uid);
        }
        if places.is_empty() {
            files::remove(&self.file(key))?;
            self.places.remove(key);
            return Ok(());
        }
        self.write(key, places)
    }

    fn write(&mut self, key: &str, uids: Places) -> io::Result<()> {
        let known = Known {
            key: key.to_owned(),
            uids,
        };
        files::replace_sealed(&self.file(key), &known)?;
        self.places.insert(known.key, known.uids);
        Ok(())
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder
            .join(format!("{}.json", trueup_journal::path_component(key)))
    }
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(identifiers: &[&str]) -> Vec<String> {
        identifiers.iter().map(|&identifier| identifier.to_owned()).collect()
    }

    #[test]
    fn a_restart_keeps_remembered_keys_and_not_forgotten_ones() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("keys");
        let mut known = KnownKeys::load(&folder).unwrap();
        known.remember("default/web", "u1", &on(&["lb-1"])).unwrap();
        known.remember("default/web", "u1", &on(&["lb-2"])).unwrap();
        known.remember("default/web", "u2", &on(&["lb-2"])).unwrap();
        known.remember("apps/api", "u3", &on(&["lb-1"])).unwrap();

        let mut again = KnownKeys::load(&folder).unwrap();
        assert_eq!(again.keys().collect::<Vec<_>>(), ["apps/api", "default/web"]);
        let places: Places = [
            ("u1".to_owned(), on(&["lb-1", "lb-2"]).into_iter().collect()),
            ("u2".to_owned(), on(&["lb-2"]).into_iter().collect()),
        ]
        .into();
        assert_eq!(again.places("default/web"), places);
        again.forget("default/web", "u1", &on(&["lb-1"])).unwrap();
        again.forget("default/web", "u2", &on(&["lb-1", "lb-2"])).unwrap();
        again.forget("apps/api", "u3", &on(&["lb-1"])).unwrap();
        again.forget("apps/api", "u3", &on(&["lb-1"])).unwrap();

        let last = KnownKeys::load(&folder).unwrap();
        assert_eq!(last.keys().collect::<Vec<_>>(), ["default/web"]);
        assert_eq!(
            last.places("default/web"),
            [("u1".to_owned(), on(&["lb-2"]).into_iter().collect())].into()
        );
    }

    #[test]
    fn a_file_that_somebody_removed_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = KnownKeys::load(folder.path()).unwrap();
        known.remember("default/web", "u1", &on(&["lb-1"])).unwrap();
        std::fs::remove_file(folder.path().join("default%2Fweb.json")).unwrap();
        known.forget("default/web", "u1", &on(&["lb-1"])).unwrap();
        assert_eq!(known.keys().count(), 0);
    }

    #[test]
    fn a_damaged_file_is_named_not_skipped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.json"), "{").unwrap();
        let error = KnownKeys::load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a.json"), "{error}");
    }

    #[test]
    fn another_uid_than_was_written_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = KnownKeys::load(folder.path()).unwrap();
        known.remember("default/web", "u1", &on(&["lb-1"])).unwrap();
        let file = folder.path().join("default%2Fweb.json");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("u1", "u3")).unwrap();
        let error = KnownKeys::load(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("default%2Fweb.json: the checksum does not fit"),
            "{error}"
        );
    }
}
