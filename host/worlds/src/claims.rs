//! The owner of a name that several keys claim: the first of them in order.
//!
//! Two instances with one name would keep removing each other's objects.

use std::collections::{BTreeMap, BTreeSet};

/// For each name, the keys that claim it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claims<K>(BTreeMap<String, BTreeSet<K>>);

impl<K> Default for Claims<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Claims<K> {
    /// `key` now claims these names instead of the names in `before`. Returns the keys whose ownership may have
    /// changed.
    pub(crate) fn change(&mut self, key: &K, before: &BTreeSet<String>, now: &BTreeSet<String>) -> BTreeSet<K> {
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
    pub(crate) fn owner(&self, name: &str) -> Option<&K> {
        self.0.get(name)?.first()
    }
}
