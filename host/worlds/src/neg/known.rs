//! The keys that this host has worked on, with the zones and the names of their NEGs. The host uses them to empty the
//! NEGs of a Service that was deleted while the host was down.
//!
//! ```text
//! state_dir/keys/neg/<key>.json    a key, and the settings that the adapter gave it
//! state_dir/neg/places.json        zones and subnets that Nodes were in
//! ```

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trueup_base::regular;
use trueup_work::files;
use trueup_work::keyed::key_records::{KeyRecord, KeyRecords, named};

use crate::neg::adapter::{Key, Locations};
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

/// The file with the locations of Nodes.
#[derive(Debug)]
pub(super) struct LocationsFile(PathBuf);

impl LocationsFile {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self(state_dir.join(NAME).join("places.json"))
    }

    /// Where Nodes were when the last process ended.
    ///
    /// # Errors
    /// If the file can't be read. The error names it.
    pub(super) fn read(&self) -> io::Result<Locations> {
        match regular::read(&self.0, regular::LIST) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| named(&self.0, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Locations::default()),
            Err(error) => Err(named(&self.0, &error)),
        }
    }

    /// Keeps where Nodes are and were.
    ///
    /// # Errors
    /// If it can't be written. The error names the file.
    pub(super) fn keep(&self, locations: &Locations) -> io::Result<()> {
        files::replace_json(&self.0, locations)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let file = LocationsFile::new(dir.path());
        let locations = Locations {
            zones: ["a".to_owned()].into(),
            ..Locations::default()
        };
        assert_eq!(file.read().unwrap(), Locations::default());
        file.keep(&locations).unwrap();

        let known = KnownKeys::load(dir.path()).unwrap();
        assert_eq!(known.keys().collect::<Vec<_>>(), [&web]);
        assert_eq!(known.get(&web).unwrap().settings, settings(&json!(["a", "b"])));
        assert_eq!(file.read().unwrap(), locations);
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
}
