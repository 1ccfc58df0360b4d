//! What the database holds under the agent's keys, as far as known.

use std::collections::BTreeMap;

/// Known values and unknown keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// None: a write failed, so it may be there or not, with this value or another.
    pub keys: BTreeMap<String, Option<String>>,
    /// True: what is not in `keys` is not in the database.
    pub is_complete: bool,
}

impl Cache {
    /// What a listing found.
    #[must_use]
    pub fn listed(entries: impl Iterator<Item = (String, String)>) -> Self {
        Self {
            keys: entries.map(|(key, value)| (key, Some(value))).collect(),
            is_complete: true,
        }
    }

    /// True if the key is known to have the value.
    #[must_use]
    pub fn has(&self, key: &str, value: &str) -> bool {
        matches!(self.keys.get(key), Some(Some(known)) if known == value)
    }

    /// True if the key is known not to be there.
    #[must_use]
    pub fn lacks(&self, key: &str) -> bool {
        self.is_complete && !self.keys.contains_key(key)
    }

    /// It has this value now.
    pub fn put(&mut self, key: String, value: String) {
        self.keys.insert(key, Some(value));
    }

    /// It is gone.
    pub fn deleted(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// Whatever was written to it, it may have been stored or not.
    pub fn lost(&mut self, key: String) {
        self.keys.insert(key, None);
    }
}
