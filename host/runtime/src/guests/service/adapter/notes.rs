//! What an operator should know of objects, and has not been told yet.
//!
//! A note is told when it begins to hold. Where it holds no more it is forgotten, so that it is told again when it comes
//! again.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::ObjectRef;

/// The notes that hold, by whom they are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Notes(BTreeMap<ObjectRef, BTreeSet<String>>);

impl Notes {
    /// What holds of an object from now on; answers what of it did not before.
    pub(super) fn set(&mut self, reference: &ObjectRef, now: BTreeSet<String>) -> Vec<String> {
        let was = self.0.remove(reference).unwrap_or_default();
        let new = now.difference(&was).cloned().collect();
        if !now.is_empty() {
            self.0.insert(reference.clone(), now);
        }
        new
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, reference: &ObjectRef) {
        self.0.remove(reference);
    }

    /// Those that hold.
    pub(super) fn standing(&self) -> impl Iterator<Item = &str> {
        self.0.values().flatten().map(String::as_str)
    }
}
