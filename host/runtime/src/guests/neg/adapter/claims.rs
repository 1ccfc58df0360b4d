//! Whose a NEG's name is: of several keys that come to one name, the first in order.
//!
//! Two instances with one NEG would take each other's endpoints out of it for ever.

use std::collections::{BTreeMap, BTreeSet};

use super::Key;

/// By name, the keys that come to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claims(BTreeMap<String, BTreeSet<Key>>);

impl Claims {
    /// `key` comes to these names, and not any more to those that it came to `before`. Answers the keys for which that
    /// may be another word.
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

    /// The key that a name belongs to.
    pub(super) fn owner(&self, name: &str) -> Option<&Key> {
        self.0.get(name)?.first()
    }
}
