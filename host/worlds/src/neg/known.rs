//! The keys that this host has worked on, with the zones and the names of their NEGs. The host uses them to empty the
//! NEGs of a Service that was deleted while the host was down.
//!
//! ```text
//! state_dir/keys/neg/<key>.json    a key, and the settings that the adapter gave it
//! state_dir/neg/places.json        zones and subnets that Nodes were in
//! state_dir/neg/term.json          how often the Lease had changed hands when this host acted last
//! ```

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trueup_config::NEG_NAMES;
use trueup_work::files;
use trueup_work::keyed::key_records::{KeyRecord, KeyRecords};

use crate::neg::adapter::Key;
use crate::neg::guest::NAME;

/// What is known of one key: the format of its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeySettings {
    key: String,
    pub(super) settings: Map<String, Value>,
}

impl KeyRecord for KeySettings {
    type Key = Key;
    const SAYS: &'static str = "which NEGs a Service has, should that go away";

    fn key(&self) -> &str {
        &self.key
    }
}

/// All known keys.
pub(super) type KnownKeys = KeyRecords<KeySettings>;

/// Remembers that a key may have endpoints in these NEGs. It is on disk before this returns.
///
/// # Errors
/// If it can't be written. The caller must then attach nothing.
pub(super) fn remember(known: &mut KnownKeys, key: &Key, settings: &Map<String, Value>) -> io::Result<()> {
    if known.get(key).is_some_and(|known| known.settings == *settings) {
        return Ok(());
    }
    let record = KeySettings {
        key: key.to_string(),
        settings: settings.clone(),
    };
    known.put(key, record)
}

/// The names of the NEGs that known keys have.
pub(super) fn held_negs(known: &KnownKeys) -> impl Iterator<Item = (String, Key)> {
    let records = known.keys().filter_map(|key| Some((key, known.get(key)?)));
    records.flat_map(|(key, record)| {
        let names = record.settings.get(NEG_NAMES).and_then(Value::as_object);
        let names = names.into_iter().flat_map(Map::values).filter_map(Value::as_str);
        names.map(|name| (name.to_owned(), key.clone()))
    })
}

/// The file with the zones and subnets that Nodes are and were in.
pub(super) fn locations_file(state_dir: &Path) -> PathBuf {
    state_dir.join(NAME).join("places.json")
}

/// The format of the file that says when this host acted last, by the Lease's count of its holders.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acted {
    transitions: i32,
}

/// This host acts from here on, with this count. Returns whether others acted since it did last: what a kill cut short
/// is finished from its recorded answers only if no other host has changed anything since. If the file can't be read,
/// assumes that they did.
pub(super) fn others_acted(state_dir: &Path, transitions: i32) -> bool {
    let file = state_dir.join(NAME).join("term.json");
    let before = files::read_json(&file).unwrap_or_else(|error| {
        tracing::warn!("{error}: others may have acted since this host did");
        Some(Acted { transitions: i32::MIN })
    });
    if let Err(error) = files::replace_json(&file, &Acted { transitions }) {
        tracing::warn!("{error}: the next start takes it that others have acted");
    }
    // One more is this host succeeding itself: it was started again, or had given the Lease back.
    before.is_some_and(|before| !(0..=1).contains(&transitions.saturating_sub(before.transitions)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::neg::adapter::Locations;

    fn settings(zones: &Value) -> Map<String, Value> {
        Map::from_iter([("zones".to_owned(), zones.clone())])
    }

    #[test]
    fn a_restart_keeps_what_a_key_had_and_not_forgotten_keys() {
        let dir = tempfile::tempdir().unwrap();
        let [web, api] = ["shop/web/80", "shop/api/443"].map(|key| key.parse::<Key>().unwrap());
        let mut known = KnownKeys::load(dir.path()).unwrap();
        remember(&mut known, &web, &settings(&json!(["a"]))).unwrap();
        remember(&mut known, &web, &settings(&json!(["a", "b"]))).unwrap();
        remember(&mut known, &api, &settings(&json!([]))).unwrap();
        known.remove(&api).unwrap();
        known.remove(&api).unwrap();
        let file = locations_file(dir.path());
        let locations = Locations {
            zones: ["a".to_owned()].into(),
            ..Locations::default()
        };
        assert_eq!(files::read_json::<Locations>(&file).unwrap(), None);
        files::replace_json(&file, &locations).unwrap();

        let known = KnownKeys::load(dir.path()).unwrap();
        assert_eq!(known.keys().collect::<Vec<_>>(), [&web]);
        assert_eq!(known.get(&web).unwrap().settings, settings(&json!(["a", "b"])));
        assert_eq!(files::read_json(&file).unwrap(), Some(locations));
    }

    #[test]
    fn a_damaged_file_is_named_not_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let mut known = KnownKeys::load(dir.path()).unwrap();
        let key: Key = "shop/web/80".parse().unwrap();
        remember(&mut known, &key, &Map::new()).unwrap();
        let file = known.file(&key);
        let moved = std::fs::read_to_string(&file).unwrap().replace("80", "81");
        for text in ["{", r#"{"key":"shop/web","settings":{}}"#, &moved] {
            std::fs::write(&file, text).unwrap();
            let error = KnownKeys::load(dir.path()).unwrap_err().to_string();
            assert!(error.contains(".json") && error.contains("repair it"), "{error}");
        }
    }

    #[test]
    fn others_have_acted_where_the_lease_changed_hands_more_than_once() {
        let folder = tempfile::tempdir().unwrap();
        let others_acted = |transitions| others_acted(folder.path(), transitions);
        assert!(!others_acted(4), "nothing was done before");
        assert!(!others_acted(4), "it holds it still");
        assert!(!others_acted(5), "from itself to itself");
        assert!(others_acted(7), "to another, and back");
        assert!(others_acted(0), "another Lease");
        assert!(!others_acted(1));
        std::fs::write(folder.path().join("neg/term.json"), "{").unwrap();
        assert!(others_acted(2), "the outcome is unknown");
    }
}
