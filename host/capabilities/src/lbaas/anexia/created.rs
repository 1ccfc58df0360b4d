//! The parents that this process created itself, so that they can't hold orphans of an earlier run.
//!
//! The process forgets a parent as soon as one of its children is unaccounted for; this costs one list, never an
//! orphan. It forgets all parents when another epoch begins: another host may have acted, and have been killed before
//! it tagged a child.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::http::Engine;
use super::intents::Intent;

/// Identifiers have 32 characters, so this is a few MiB. Above it, the smallest are forgotten.
const PARENTS_MAX: usize = 50_000;

/// The parents whose children this process knows completely.
#[derive(Debug, Default)]
pub(super) struct CreatedParents {
    known: Mutex<Known>,
}

/// Those of one epoch.
#[derive(Debug, Default)]
struct Known {
    epoch: u64,
    identifiers: BTreeSet<String>,
}

impl CreatedParents {
    /// Records a parent that this process has just created in this epoch.
    pub(super) fn insert(&self, epoch: u64, identifier: &str) {
        let mut known = self.known.lock();
        if known.epoch > epoch {
            return;
        }
        if known.epoch < epoch {
            *known = Known {
                epoch,
                identifiers: BTreeSet::new(),
            };
        }
        known.identifiers.insert(identifier.to_owned());
        if known.identifiers.len() > PARENTS_MAX {
            known.identifiers.pop_first();
        }
    }

    pub(super) fn remove(&self, identifier: &str) {
        self.known.lock().identifiers.remove(identifier);
    }

    /// Whether this process created it in this epoch.
    pub(super) fn contains(&self, epoch: u64, identifier: &str) -> bool {
        let known = self.known.lock();
        known.epoch == epoch && known.identifiers.contains(identifier)
    }
}

/// A child's pending creation. If it is dropped unsettled (also when its call is dropped), its parent is forgotten and
/// its intent stays open.
pub(super) struct Unaccounted {
    engine: Arc<Engine>,
    parent: String,
    intent: Option<Intent>,
    accounted: bool,
}

impl Unaccounted {
    /// `intent` is `None` if that of an earlier request for the same child stays open in any case.
    pub(super) fn new(engine: &Arc<Engine>, parent: &str, intent: Option<Intent>) -> Self {
        Self {
            engine: Arc::clone(engine),
            parent: parent.to_owned(),
            intent,
            accounted: false,
        }
    }

    /// The child carries its tags, or certainly does not exist.
    pub(super) fn settle(mut self) {
        self.accounted = true;
        if let Some(intent) = self.intent.take() {
            intent.settle();
        }
    }
}

impl Drop for Unaccounted {
    fn drop(&mut self) {
        if !self.accounted {
            self.engine.created_parents.remove(&self.parent);
            if let Some(intent) = &self.intent {
                intent.leave_open();
            }
        }
    }
}
