//! Which parents this process created itself, so that they can't hold orphans of an earlier run.
//!
//! A parent is forgotten as soon as one of its children is unaccounted for, and all are when another host may have acted
//! meanwhile: it may have left children in them. Forgetting costs one list, never an orphan.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::http::Engine;
use crate::fence::Fence;

/// Identifiers have 32 characters, so this is a few MiB. Beyond it, the smallest are forgotten.
const PARENTS_MAX: usize = 50_000;

/// The parents whose children are all known to this process.
#[derive(Debug)]
pub(super) struct CreatedParents {
    fence: Fence,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    term: u64,
    identifiers: BTreeSet<String>,
}

impl CreatedParents {
    /// None yet. What is known holds while `fence` lets through without a break.
    pub(super) fn new(fence: Fence) -> Self {
        Self {
            fence,
            known: Mutex::default(),
        }
    }

    /// Which of the times it is that this host acts.
    pub(super) fn term(&self) -> u64 {
        self.fence.openings()
    }

    /// Notes a parent that this process has just created, in a creation that began in this term.
    pub(super) fn insert(&self, identifier: &str, term: u64) {
        let mut known = self.known();
        if known.term != term {
            return;
        }
        known.identifiers.insert(identifier.to_owned());
        if known.identifiers.len() > PARENTS_MAX {
            known.identifiers.pop_first();
        }
    }

    pub(super) fn remove(&self, identifier: &str) {
        self.known().identifiers.remove(identifier);
    }

    pub(super) fn contains(&self, identifier: &str) -> bool {
        self.known().identifiers.contains(identifier)
    }

    /// What is known in the term that it is now.
    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let term = self.term();
        if known.term != term {
            *known = Known {
                term,
                identifiers: BTreeSet::new(),
            };
        }
        known
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
