//! The keys that this host has worked on, with the zones and the names of their NEGs. The host uses them to empty the
//! NEGs of a Service that was deleted while the host was down.
//!
//! ```text
//! state_dir/keys/neg/<key>.json    a key, and the settings that the adapter gave it
//! state_dir/neg/places.json        zones and subnets that Nodes were in
//! ```

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trueup_base::regular;
use trueup_work::files;
use trueup_work::keyed::known::{Known, Record, named};

use crate::neg::adapter::{Key, Places};
use crate::neg::guest::NAME;

/// What is known of one key: the format of its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    key: String,
    settings: Map<String, Value>,
}

impl Record for Settings {
    type Key = Key;
    const SAYS: &'static str = "which NEGs a Service has, should that go away";

    fn key(&self) -> &str {
        &self.key
    }
}

/// All known keys, and where Nodes were.
#[derive(Debug)]
pub(super) struct KnownNegs {
    keys: Known<Settings>,
    places: PathBuf,
}

impl KnownNegs {
    /// Reads the keys of a state folder.
    ///
    /// # Errors
    /// If a file can't be read. The error names it. Nothing is guessed: a key that is not known is never emptied.
    pub(super) fn load(state_dir: &Path) -> io::Result<Self> {
        Ok(Self {
            keys: Known::load(&state_dir.join("keys").join(NAME))?,
            places: state_dir.join(NAME).join("places.json"),
        })
    }

    /// All keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.keys()
    }

    /// The keys in a range.
    pub(super) fn range(&self, keys: RangeInclusive<Key>) -> impl Iterator<Item = &Key> {
        self.keys.range(keys)
    }

    /// The last settings of a key. `None` if it is not known.
    pub(super) fn settings(&self, key: &Key) -> Option<&Map<String, Value>> {
        self.keys.get(key).map(|known| &known.settings)
    }

    /// Remembers that a key may have endpoints in these NEGs. It is on disk before this returns.
    ///
    /// # Errors
    /// If it can't be written. The caller must then attach nothing.
    pub(super) fn remember(&mut self, key: &Key, settings: &Map<String, Value>) -> io::Result<()> {
        if self.settings(key) == Some(settings) {
            return Ok(());
        }
        let known = Settings {
            key: key.to_string(),
            settings: settings.clone(),
        };
        self.keys.put(key, known)
    }

    /// Forgets a key that has nothing in any NEG.
    ///
    /// # Errors
    /// If the file can't be removed. The host then looks for the key once more.
    pub(super) fn forget(&mut self, key: &Key) -> io::Result<()> {
        self.keys.remove(key)
    }

    /// Where Nodes were when the last process ended.
    ///
    /// # Errors
    /// If the file can't be read. The error names it.
    pub(super) fn places(&self) -> io::Result<Places> {
        match regular::read(&self.places, regular::LIST) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| named(&self.places, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Places::default()),
            Err(error) => Err(named(&self.places, &error)),
        }
    }

    /// Keeps where Nodes are and were.
    ///
    /// # Errors
    /// If it can't be written. The error names the file.
    pub(super) fn keep_places(&self, places: &Places) -> io::Result<()> {
        files::replace_json(&self.places, places)
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
        let mut known = KnownNegs::load(dir.path()).unwrap();
        known.remember(&web, &settings(&json!(["a"]))).unwrap();
        known.remember(&web, &settings(&json!(["a", "b"]))).unwrap();
        known.remember(&api, &settings(&json!([]))).unwrap();
        known.forget(&api).unwrap();
        known.forget(&api).unwrap();
        let places = Places {
            zones: ["a".to_owned()].into(),
            ..Places::default()
        };
        assert_eq!(known.places().unwrap(), Places::default());
        known.keep_places(&places).unwrap();

        let known = KnownNegs::load(dir.path()).unwrap();
        assert_eq!(known.keys().collect::<Vec<_>>(), [&web]);
        assert_eq!(known.settings(&web), Some(&settings(&json!(["a", "b"]))));
        assert_eq!(known.places().unwrap(), places);
    }

    #[test]
    fn a_damaged_file_is_named_not_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let mut known = KnownNegs::load(dir.path()).unwrap();
        let key: Key = "shop/web/80".parse().unwrap();
        known.remember(&key, &Map::new()).unwrap();
        let file = known.keys.file(&key);
        let moved = std::fs::read_to_string(&file).unwrap().replace("80", "81");
        for text in ["{", r#"{"key":"shop/web","settings":{}}"#, &moved] {
            std::fs::write(&file, text).unwrap();
            let error = KnownNegs::load(dir.path()).unwrap_err().to_string();
            assert!(error.contains(".json") && error.contains("repair it"), "{error}");
        }
    }
}
