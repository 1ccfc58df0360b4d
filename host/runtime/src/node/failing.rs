//! Handles repeated failures of a guest of this node as its failure policy says: counts them, sets aside the input
//! with which it failed, and requests another version.

use std::sync::Arc;

use serde::Serialize;

use crate::config::FailurePolicy;
use crate::instances::Instances;
use crate::lifecycle::quarantine;
use crate::lifecycle::quarantine::{Quarantine, SetAside};
use crate::lifecycle::troubles::{TooMuch, enough};
use crate::work::falling::Falling;

/// One for each guest.
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

    /// The guest answered a call.
    pub(super) fn took(&mut self) {
        self.faults = 0;
    }

    /// The guest failed in a call. Returns the reason if that was once too often.
    pub(super) fn failed(&mut self, error: &str) -> Option<TooMuch> {
        self.faults = self.faults.saturating_add(1);
        if self.faults < enough(&self.policy) {
            return None;
        }
        Some(TooMuch {
            error: error.to_owned(),
            failures: std::mem::take(&mut self.faults),
        })
    }

    /// Requests another version, as the policy says. Sets nothing aside: the next call has the same input.
    pub(super) fn wish(&mut self, instances: &Instances, what: &str, too_much: TooMuch) {
        self.falling.wish(&entry(instances, what, &what, too_much));
    }

    /// Sets `what` aside, and requests another version. `input` is the object with which the guest failed.
    pub(super) fn set_aside(
        &mut self,
        instances: &Instances,
        what: &str,
        input: &impl Serialize,
        too_much: TooMuch,
    ) -> SetAside {
        let entry = entry(instances, what, input, too_much);
        if let Err(error) = self.quarantine.set_aside(&instances.identity(what), entry.clone()) {
            tracing::warn!("{what} is set aside until the next start alone: {error}");
        }
        self.falling.wish(&entry);
        entry
    }

    /// Whether nothing is set aside.
    pub(super) fn is_empty(&self) -> bool {
        self.quarantine.is_empty()
    }

    /// Whether `what` is set aside, in its current form or an earlier one.
    pub(super) fn has(&self, what: &str) -> bool {
        self.quarantine.has(what)
    }

    /// The entry, if `what` is set aside in this form for this version.
    pub(super) fn holds(&self, instances: &Instances, what: &str, input: &impl Serialize) -> Option<SetAside> {
        if !self.has(what) {
            return None;
        }
        let digest = instances.program.guest.digest.to_string();
        self.quarantine
            .holds(what, &quarantine::input(instances, input), &digest)
    }

    /// The guest took everything except what is `still` set aside. Releases everything else.
    pub(super) fn took_all_but(&mut self, still: impl Fn(&str) -> bool) {
        self.took();
        for entry in self.quarantine.all() {
            if !still(&entry.instance) {
                self.release(&entry.instance);
            }
        }
    }

    /// Releases `what`, to be tried again.
    pub(super) fn release(&self, what: &str) {
        self.quarantine.release(what);
    }

    /// Another version is active: releases everything.
    pub(super) fn is_new(&mut self) {
        self.faults = 0;
        self.quarantine.release_all();
    }
}

fn entry(instances: &Instances, what: &str, input: &impl Serialize, too_much: TooMuch) -> SetAside {
    let input = quarantine::input(instances, input);
    let mut entry = SetAside::new(instances, what.to_owned(), input, too_much);
    // The recording is that of the instance, whichever object it failed with.
    let key = what.split(' ').next().unwrap_or(what);
    entry.journal = instances.recording(key.rsplit('/').next().unwrap_or(key));
    entry
}
