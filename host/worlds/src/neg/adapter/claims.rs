//! The owner of a NEG's name: of several keys with the same name, the first in order.
//!
//! Two instances with one NEG would keep removing each other's endpoints.

use std::collections::{BTreeMap, BTreeSet};

use super::key::Key;

/// For each name, the keys that claim it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claims(BTreeMap<String, BTreeSet<Key>>);

impl Claims {
    /// `key` now claims these names instead of the names in `before`. Returns the keys whose ownership may have
    /// changed.
    pub(super) fn change(&mut self, key: &Key, before: &BTreeSet<String>, now: &BTreeSet<String>) -> BTreeSet<Key> {
        let mut concerned = BTreeSet::new();
        for name in before.difference(now) {
            if let Some(keys) = self.0.get_mut(name) {
                keys.remove(key);
                concerned.extend(keys.iter().cloned());
                if keys.is_empty() {
                    self.0.remove(name);
                }
            }
        }
        for name in now.difference(before) {
            let keys = self.0.entry(name.clone()).or_default();
            concerned.extend(keys.iter().cloned());
            keys.insert(key.clone());
        }
        concerned
    }

    /// The owner of a name.
    pub(super) fn owner(&self, name: &str) -> Option<&Key> {
        self.0.get(name)?.first()
    }
}
