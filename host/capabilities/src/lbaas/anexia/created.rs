//! Which parents this process created itself, so that they can't hold orphans of an earlier run.
//!
//! A parent is forgotten as soon as one of its children is unaccounted for; forgetting costs one list, never an orphan.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::http::Engine;

/// Identifiers have 32 characters, so this is a few MiB. Beyond it, the smallest are forgotten.
const PARENTS_MAX: usize = 50_000;

/// The parents whose children are all known to this process.
#[derive(Debug, Default)]
pub(super) struct CreatedParents {
    identifiers: Mutex<BTreeSet<String>>,
}

impl CreatedParents {
    /// Notes a parent that this process has just created.
    pub(super) fn insert(&self, identifier: &str) {
        let mut identifiers = self.lock();
        identifiers.insert(identifier.to_owned());
        if identifiers.len() > PARENTS_MAX {
            identifiers.pop_first();
        }
    }

    pub(super) fn remove(&self, identifier: &str) {
        self.lock().remove(identifier);
    }

    pub(super) fn contains(&self, identifier: &str) -> bool {
        self.lock().contains(identifier)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.identifiers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child's creation under way. Dropped before it is accounted for (also by whoever stops waiting), its parent is
/// forgotten.
pub(super) struct Unaccounted {
    engine: Arc<Engine>,
    parent: String,
    accounted: bool,
}

impl Unaccounted {
    pub(super) fn new(engine: &Arc<Engine>, parent: &str) -> Self {
        Self {
            engine: Arc::clone(engine),
            parent: parent.to_owned(),
            accounted: false,
        }
    }

    /// The child carries its tags, or is certainly not there.
    pub(super) fn settle(mut self) {
        self.accounted = true;
    }
}

impl Drop for Unaccounted {
    fn drop(&mut self) {
        if !self.accounted {
            self.engine.created_parents.remove(&self.parent);
        }
    }
}
