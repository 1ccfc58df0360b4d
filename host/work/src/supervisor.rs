//! Handles repeated failures of a guest as its failure policy says: counts them for each input, sets an input aside,
//! and requests another version.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::mpsc;
use trueup_capabilities::Identity;
use trueup_config::FailurePolicy;
use trueup_instance::Instances;

use crate::lifecycle::failure::{Blame, Failure};
use crate::lifecycle::failure_counts::{FailureCounts, TooMuch};
use crate::lifecycle::quarantine::{self, Quarantine, SetAside};
use crate::swap::{FallBack, FallBackRequests};

/// The maximum number of failing inputs that are counted, far more than one instance has at a time.
const FAILING_MAX: usize = 1_000;

/// One for each guest.
pub struct Supervisor {
    /// What is set aside.
    pub quarantine: Arc<Quarantine>,
    /// Requests for the version that the failure policy names.
    pub(crate) fall_backs: FallBackRequests,
    pub(crate) failures: FailureCounts,
}

impl Supervisor {
    /// `fall_back`: where requests for the version of the policy go.
    pub fn new(quarantine: Arc<Quarantine>, policy: FailurePolicy, fall_back: mpsc::UnboundedSender<FallBack>) -> Self {
        Self {
            quarantine,
            fall_backs: FallBackRequests::new(fall_back, &policy),
            failures: FailureCounts::new(policy),
        }
    }

    /// For a guest without a manager: has the default policy, and ignores requests for another version.
    pub fn alone(instances: &Instances) -> Self {
        let quarantine = Arc::new(Quarantine::load(&instances.state_dir, instances.name));
        Self::new(quarantine, FailurePolicy::default(), mpsc::unbounded_channel().0)
    }

    /// The guest answered a call with this input, or the input is gone.
    pub fn succeeded(&mut self, what: &str) {
        self.failures.by_name.remove(what);
    }

    /// There was no answer. Returns the reason if that was the guest's fault once too often, and then counts anew.
    pub fn failed(&mut self, what: &str, failure: &Failure) -> Option<TooMuch> {
        if failure.blame != Blame::Guest {
            return None;
        }
        let failing = &self.failures.by_name;
        if failing.len() >= FAILING_MAX && !failing.contains_key(what) {
            self.failures.forget_all();
        }
        self.failures.after(what, "", &Err(failure.clone()), &[])
    }

    /// Requests another version, as the policy says. Sets nothing aside: the next call has the same input.
    pub fn fall_back(&mut self, instances: &Instances, what: &str, too_much: TooMuch) {
        let entry = entry(instances, what, &what, too_much);
        self.fall_backs.request(instances.name, &entry);
    }

    /// Sets `what` aside, and requests another version. `input` is that with which the guest failed, and `audited` the
    /// instance in the audit log.
    pub fn set_aside(
        &mut self,
        instances: &Instances,
        audited: &str,
        what: &str,
        input: &impl Serialize,
        too_much: TooMuch,
    ) -> SetAside {
        let entry = entry(instances, what, input, too_much);
        self.put(&instances.identity(audited), &entry);
        // The version that becomes active finds it set aside, and releases it.
        self.fall_backs.request(instances.name, &entry);
        entry
    }

    /// Sets an input aside with which the guest `about` failed.
    pub(crate) fn put(&self, about: &Identity, entry: &SetAside) {
        if let Err(error) = self.quarantine.set_aside(about, entry.clone()) {
            let what = &entry.instance;
            tracing::warn!("{what} is set aside until the next start alone: {error}");
        }
    }

    /// Whether there is no failure and nothing is set aside.
    pub fn is_empty(&self) -> bool {
        self.failures.by_name.is_empty() && self.quarantine.is_empty()
    }

    /// The entry, if `what` is set aside in this form for this version.
    pub fn held(&self, instances: &Instances, what: &str, input: &impl Serialize) -> Option<SetAside> {
        if !self.quarantine.has(what) {
            return None;
        }
        let input = quarantine::input(instances, input);
        let digest = &instances.program.guest.digest;
        self.quarantine.holds(what, &input, &digest.to_string())
    }

    /// The guest took everything. Releases what was set aside.
    pub fn took_all(&mut self) {
        self.failures.forget_all();
        self.quarantine.release_all();
    }

    /// Another version is active: releases everything. Returns the entries, and the names of those with which the guest
    /// failed since.
    pub fn began_version(&mut self) -> (Vec<SetAside>, Vec<String>) {
        (self.quarantine.release_all(), self.failures.forget_all())
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
