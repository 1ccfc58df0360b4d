//! Inputs that are set aside, and the versions of the guest that have them tried again.

use tokio::sync::oneshot;
use trueup_capabilities::clock::{Clock as _, SystemClock};

use super::{Negs, Wanted, job};
use crate::decisions::Cause;
use crate::guests::neg::adapter::Key;
use crate::run::active::Handover;
use crate::run::quarantine::{self, SetAside};
use crate::run::troubles::TooMuch;
use crate::run::{Event, Instances};
use crate::swap::Fallen;

impl<T: FnMut(Event)> Negs<'_, T> {
    /// Starts a job, unless exactly this input is set aside.
    pub(super) fn start_or_hold(&mut self, key: Key, wanted: Wanted) {
        let instance = key.to_string();
        let held = if self.quarantine.has(&instance) {
            let instances = job::of_key(&self.shared.active.instances(), &wanted.settings);
            let digest = instances.program.guest.digest.to_string();
            let input = quarantine::input(&instances, &wanted);
            self.quarantine.holds(&instance, &input, &digest)
        } else {
            None
        };
        let Some(held) = held else {
            if let Some(released) = self.quarantine.release(&instance) {
                self.pending.because(&key, SystemClock.now_ms(), released.cause());
            }
            self.start(key, wanted);
            return;
        };
        self.setup.board.set_aside(&instance, &held.error, held.failures);
        self.rest(&key);
        let standing = Some(Err(held.error.clone()));
        if self.entry(&key).standing != standing {
            self.tell_set_aside(&held);
            // The process that set it aside may have ended before another version was active.
            self.wish_to_fall_back(&held);
            self.entry(&key).standing = standing;
        }
    }

    /// What is in its NEGs stays as it is, until the input or the guest changes.
    pub(super) fn set_aside(&mut self, key: Key, input: String, too_much: TooMuch) {
        let TooMuch { error, failures } = too_much;
        let instances = self.shared.active.instances();
        let instance = key.to_string();
        let about = instances.identity(&instance);
        let entry = SetAside {
            journal: instances.recording(&instance),
            digest: instances.program.guest.digest.to_string(),
            input,
            at_ms: SystemClock.now_ms(),
            error: error.clone(),
            instance,
            failures,
        };
        self.set_alarm(&key, None);
        // Whoever is told finds it so.
        if let Err(error) = self.quarantine.set_aside(&about, entry.clone()) {
            tracing::warn!(%key, "it is set aside until the next start alone: {error}");
        }
        self.setup.board.set_aside(&entry.instance, &error, failures);
        self.tell_set_aside(&entry);
        self.wish_to_fall_back(&entry);
        self.entry(&key).standing = Some(Err(error));
    }

    /// Where the failure policy says so, another version becomes active, which releases what is set aside. One wish at a
    /// time: the others that fail meanwhile are released by the same version.
    fn wish_to_fall_back(&mut self, entry: &SetAside) {
        if self.falling_back.is_some() {
            return;
        }
        let (answer, answered) = oneshot::channel();
        let fallen = Fallen {
            digest: entry.digest.clone(),
            why: format!("{} failed {} times: {}", entry.instance, entry.failures, entry.error),
            answer,
        };
        // Nobody takes it where the policy says otherwise.
        if self.fall_back.send(fallen).is_ok() {
            self.falling_back = Some(answered);
        }
    }

    fn tell_set_aside(&mut self, entry: &SetAside) {
        (self.tell)(Event::Quarantined {
            key: entry.instance.clone(),
            error: entry.error.clone(),
            failures: entry.failures,
            journal: entry.journal.clone(),
        });
    }

    /// Another version is active from here on: calls that run end on theirs, and each instance moves with its state at its
    /// key's next turn. What was set aside, or waits because the guest failed, is tried again.
    pub(super) fn hand_over(&mut self, handover: Handover) {
        let Handover {
            instances,
            commit,
            reply,
        } = handover;
        let committed = commit();
        if committed.is_ok() {
            let cause = became_active(&self.shared.active.instances(), &instances);
            self.shared.active.set(instances);
            self.versions += 1;
            let since_ms = SystemClock.now_ms();
            let released = self.quarantine.release_all();
            let mut again = self.troubles.forget_all();
            for entry in &released {
                let Ok(key) = entry.instance.parse::<Key>() else {
                    continue;
                };
                self.pending.because(&key, since_ms, entry.cause());
                again.push(key);
            }
            self.became_active = Some(cause.clone());
            for key in again {
                self.pending.because(&key, since_ms, cause.clone());
                self.entry(&key).inbox.sync = true;
                self.changed(&key);
            }
        }
        // Whoever asked may have gone: it is active all the same.
        let _ = reply.send(committed);
    }
}

/// Why keys run again when another version is active.
fn became_active(before: &Instances, now: &Instances) -> Cause {
    let named = |instances: &Instances| {
        let guest = &instances.program.guest;
        format!("{}@{}", guest.name, guest.version)
    };
    Cause::Version {
        guest: named(now),
        digest: now.program.guest.digest.to_string(),
        before: named(before),
    }
}
