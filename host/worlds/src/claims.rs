//! The owner of a name that several keys claim. A key that has the name keeps it as long as it claims it: a newcomer
//! must not take the objects of another one. If none has it, the key of the oldest Service gets it, and of equally old
//! ones the first in order. A Service whose age the source does not say counts as older than all others.
//!
//! Two instances with one name would keep removing each other's objects.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// For each name, the keys that claim it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claims<K: Ord> {
    /// With the time at which the Service of the key was created, if the source says so.
    claimants: BTreeMap<String, BTreeSet<(Option<Time>, K)>>,
    /// The key that has each name, as long as it claims it.
    holders: BTreeMap<String, K>,
    /// The names whose claimants changed since the last [`Claims::settle`].
    changed: BTreeSet<String>,
}

impl<K: Ord + Clone> Claims<K> {
    /// Nothing is claimed yet. `held`: names that keys had when the process before ended. Of several keys with one
    /// name, the first has it.
    pub(crate) fn new(held: impl IntoIterator<Item = (String, K)>) -> Self {
        let mut holders = BTreeMap::new();
        for (name, key) in held {
            holders.entry(name).or_insert(key);
        }
        Self {
            claimants: BTreeMap::new(),
            holders,
            changed: BTreeSet::new(),
        }
    }

    /// The names that a key has.
    pub(crate) fn held_by(&self, key: &K) -> BTreeSet<String> {
        let held = self.holders.iter().filter(|(_, holder)| *holder == key);
        held.map(|(name, _)| name.clone()).collect()
    }

    /// `key`, whose Service was created at `created`, now claims these names instead of the names in `before`. Returns
    /// the other keys whose ownership may have changed.
    pub(crate) fn change(
        &mut self,
        key: &K,
        created: Option<&Time>,
        before: &BTreeSet<String>,
        now: &BTreeSet<String>,
    ) -> BTreeSet<K> {
        let mut concerned = BTreeSet::new();
        for name in before.symmetric_difference(now) {
            let claimants = self.claimants.entry(name.clone()).or_default();
            claimants.retain(|(_, claimant)| claimant != key);
            concerned.extend(claimants.iter().map(|(_, claimant)| claimant.clone()));
            if now.contains(name) {
                claimants.insert((created.cloned(), key.clone()));
            } else if claimants.is_empty() {
                self.claimants.remove(name);
            }
            self.changed.insert(name.clone());
        }
        concerned
    }

    /// All claims are known: from now on each owner keeps what it has.
    pub(crate) fn settle(&mut self) {
        for name in std::mem::take(&mut self.changed) {
            match self.owner(&name).cloned() {
                Some(owner) => _ = self.holders.insert(name, owner),
                None => _ = self.holders.remove(&name),
            }
        }
    }

    /// The owner of a name. `None` if no key claims it.
    pub(crate) fn owner(&self, name: &str) -> Option<&K> {
        let claimants = self.claimants.get(name)?;
        let keys = || claimants.iter().map(|(_, key)| key);
        let holder = self.holders.get(name);
        keys().find(|key| Some(*key) == holder).or_else(|| keys().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn at(seconds: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap())
    }

    #[test]
    fn who_has_a_name_keeps_it_until_it_claims_it_no_more() {
        let mut claims = Claims::new([("x".to_owned(), "c")]);
        let (none, x) = (names(&[]), names(&["x"]));
        claims.change(&"b", None, &none, &x);
        assert_eq!(claims.owner("x"), Some(&"b"), "the holder does not claim it");
        assert_eq!(claims.change(&"c", None, &none, &x), ["b"].into());
        assert_eq!(claims.owner("x"), Some(&"c"), "not everything was known before");
        claims.settle();
        claims.change(&"a", None, &none, &x);
        claims.settle();
        assert_eq!(claims.owner("x"), Some(&"c"));
        assert_eq!(claims.change(&"c", None, &x, &none), ["a", "b"].into());
        claims.settle();
        assert_eq!(claims.owner("x"), Some(&"a"));
        claims.change(&"c", None, &none, &x);
        claims.settle();
        assert_eq!(claims.owner("x"), Some(&"a"));
    }

    #[test]
    fn of_several_newcomers_the_oldest_gets_the_name() {
        let mut claims = Claims::new([]);
        let (none, x) = (names(&[]), names(&["x"]));
        for (key, seconds) in [("a", 2), ("c", 1), ("b", 1)] {
            claims.change(&key, Some(&at(seconds)), &none, &x);
        }
        assert_eq!(claims.owner("x"), Some(&"b"));
    }
}
