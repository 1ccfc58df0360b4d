//! A guest of this node that fails again and again: counted, set aside with what it failed in, and another version wished
//! for, as its failure policy says.

use std::sync::Arc;

use crate::config::FailurePolicy;
use crate::run::Instances;
use crate::run::falling::Falling;
use crate::run::quarantine::{self, Quarantine, SetAside};
use crate::run::troubles::{TooMuch, enough};

/// See the module. One for each guest.
pub(super) struct Failing {
    quarantine: Arc<Quarantine>,
    policy: FailurePolicy,
    falling: Falling,
    /// Calls in a row in which the guest failed.
    faults: u32,
}

impl Failing {
    pub(super) fn new(quarantine: Arc<Quarantine>, policy: FailurePolicy, falling: Falling) -> Self {
        Self {
            quarantine,
            policy,
            falling,
            faults: 0,
        }
    }

    /// It gave an answer to what it is called for.
    pub(super) fn took(&mut self) {
        self.faults = 0;
    }

    /// The guest failed in a call about `what`: where that was once too often, `what` is set aside.
    pub(super) fn failed(&mut self, instances: &Instances, what: &str, error: &str) -> Option<SetAside> {
        self.faults = self.faults.saturating_add(1);
        if self.faults < enough(&self.policy) {
            return None;
        }
        let failures = std::mem::take(&mut self.faults);
        let error = error.to_owned();
        Some(self.set_aside(instances, what, TooMuch { error, failures }))
    }

    /// Sets `what` aside, and wishes for another version.
    pub(super) fn set_aside(&mut self, instances: &Instances, what: &str, too_much: TooMuch) -> SetAside {
        let input = quarantine::input(instances, &what);
        let mut entry = SetAside::new(instances, what.to_owned(), input, too_much);
        // The recording is the instance's, whatever it failed in.
        let key = what.split(' ').next().unwrap_or(what);
        entry.journal = instances.recording(key.rsplit('/').next().unwrap_or(key));
        if let Err(error) = self.quarantine.set_aside(&instances.identity(what), entry.clone()) {
            tracing::warn!("{what} is set aside until the next start alone: {error}");
        }
        self.falling.wish(&entry);
        entry
    }

    /// It took everything but what is `still` set aside: entries of an earlier process about anything else are over.
    pub(super) fn took_all_but(&mut self, still: impl Fn(&str) -> bool) {
        self.took();
        for entry in self.quarantine.all() {
            if !still(&entry.instance) {
                self.release(&entry.instance);
            }
        }
    }

    /// It is tried again.
    pub(super) fn release(&self, what: &str) {
        self.quarantine.release(what);
    }

    /// Another version is active: everything is tried again.
    pub(super) fn is_new(&mut self) {
        self.faults = 0;
        self.quarantine.release_all();
    }
}
