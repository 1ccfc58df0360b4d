//! The keys for which this host has created objects: under which UIDs, on which load balancers. The host uses them to
//! clean up after a Service that was deleted while the host was down.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};
use trueup_work::keyed::key_records::{KeyRecord, KeyRecords};

use crate::lbaas::adapter::Key;

/// Where objects of a key may exist: UID to load balancers.
pub(crate) type Locations = BTreeMap<String, BTreeSet<String>>;

/// What is known of one key: the format of its file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Uids {
    key: String,
    uids: Locations,
}

impl KeyRecord for Uids {
    type Key = Key;
    const SAYS: &'static str = "where the objects of a Service are, should that go away";

    fn key(&self) -> &str {
        &self.key
    }
}

/// All known keys.
pub(crate) type KnownKeys = KeyRecords<Uids>;

/// Where objects of `key` may exist.
pub(crate) fn locations(known: &KnownKeys, key: &Key) -> Locations {
    known.get(key).map(|known| known.uids.clone()).unwrap_or_default()
}

/// The UIDs that objects of known keys carry.
pub(crate) fn owned_uids(known: &KnownKeys) -> impl Iterator<Item = (String, Key)> {
    let records = known.keys().map(|key| (key, locations(known, key)));
    records.flat_map(|(key, uids)| uids.into_keys().map(|uid| (uid, key.clone())))
}

/// Remembers that objects of `key` may exist under `uid` on `load_balancers`. It is on disk before this returns.
///
/// # Errors
/// If it can't be written. The caller must then create nothing.
pub(crate) fn remember(known: &mut KnownKeys, key: &Key, uid: &str, load_balancers: &[String]) -> io::Result<()> {
    let mut locations = locations(known, key);
    let on = locations.entry(uid.to_owned()).or_default();
    on.extend(load_balancers.iter().cloned());
    write(known, key, locations)
}

/// Forgets that objects of `key` may exist under `uid` on `load_balancers`, since they are gone.
///
/// # Errors
/// If it can't be written. The host then looks for them once more next time.
pub(crate) fn forget(known: &mut KnownKeys, key: &Key, uid: &str, load_balancers: &[String]) -> io::Result<()> {
    let mut locations = locations(known, key);
    let Some(on) = locations.get_mut(uid) else {
        return Ok(());
    };
    on.retain(|identifier| !load_balancers.contains(identifier));
    if on.is_empty() {
        locations.remove(uid);
    }
    if locations.is_empty() {
        return known.remove(key);
    }
    write(known, key, locations)
}

fn write(known: &mut KnownKeys, key: &Key, uids: Locations) -> io::Result<()> {
    let key_text = key.to_string();
    known.put(key, Uids { key: key_text, uids })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    fn on(identifiers: &[&str]) -> Vec<String> {
        identifiers.iter().map(|&identifier| identifier.to_owned()).collect()
    }

    #[test]
    fn a_restart_keeps_remembered_keys_and_not_forgotten_ones() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("keys");
        let mut known = KnownKeys::load(&folder).unwrap();
        remember(&mut known, &key("default/web"), "u1", &on(&["lb-1"])).unwrap();
        remember(&mut known, &key("default/web"), "u1", &on(&["lb-2"])).unwrap();
        remember(&mut known, &key("default/web"), "u2", &on(&["lb-2"])).unwrap();
        remember(&mut known, &key("apps/api"), "u3", &on(&["lb-1"])).unwrap();

        let mut again = KnownKeys::load(&folder).unwrap();
        assert_eq!(
            again.keys().collect::<Vec<_>>(),
            [&key("apps/api"), &key("default/web")]
        );
        let expected: Locations = [
            ("u1".to_owned(), on(&["lb-1", "lb-2"]).into_iter().collect()),
            ("u2".to_owned(), on(&["lb-2"]).into_iter().collect()),
        ]
        .into();
        assert_eq!(locations(&again, &key("default/web")), expected);
        forget(&mut again, &key("default/web"), "u1", &on(&["lb-1"])).unwrap();
        forget(&mut again, &key("default/web"), "u2", &on(&["lb-1", "lb-2"])).unwrap();
        forget(&mut again, &key("apps/api"), "u3", &on(&["lb-1"])).unwrap();
        forget(&mut again, &key("apps/api"), "u3", &on(&["lb-1"])).unwrap();

        let last = KnownKeys::load(&folder).unwrap();
        assert_eq!(last.keys().collect::<Vec<_>>(), [&key("default/web")]);
        assert_eq!(
            locations(&last, &key("default/web")),
            [("u1".to_owned(), on(&["lb-2"]).into_iter().collect())].into()
        );
    }

    #[test]
    fn a_file_that_somebody_removed_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = KnownKeys::load(folder.path()).unwrap();
        remember(&mut known, &key("default/web"), "u1", &on(&["lb-1"])).unwrap();
        std::fs::remove_file(folder.path().join("default%2Fweb.json")).unwrap();
        forget(&mut known, &key("default/web"), "u1", &on(&["lb-1"])).unwrap();
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
        remember(&mut known, &key("default/web"), "u1", &on(&["lb-1"])).unwrap();
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
