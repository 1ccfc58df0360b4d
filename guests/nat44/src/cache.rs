//! The known contents of the database under the agent's keys.

use std::collections::BTreeMap;

/// Known values and unknown keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cache {
    /// `None` means that a write failed, so the key may exist or not, with this value or another.
    pub(crate) keys: BTreeMap<String, Option<String>>,
    /// True if every key outside `keys` is missing from the database.
    pub(crate) is_complete: bool,
}

impl Cache {
    /// The contents that a listing found.
    pub(crate) fn listed(entries: impl Iterator<Item = (String, String)>) -> Self {
        Self {
            keys: entries.map(|(key, value)| (key, Some(value))).collect(),
            is_complete: true,
        }
    }

    /// True if the key is known to have the value.
    pub(crate) fn has(&self, key: &str, value: &str) -> bool {
        matches!(self.keys.get(key), Some(Some(known)) if known == value)
    }

    /// True if the key is known to be missing.
    pub(crate) fn lacks(&self, key: &str) -> bool {
        self.is_complete && !self.keys.contains_key(key)
    }
}
