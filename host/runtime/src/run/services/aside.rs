//! Inputs that are set aside, and the versions of the guest that have them tried again.

use tokio::sync::oneshot;
use trueup_capabilities::clock::{Clock as _, SystemClock};
use trueup_controller::Outcome;

use super::super::Event;
use super::super::active::Handover;
use super::super::instances::Instances;
use super::super::publish::News;
use super::super::quarantine::{self, SetAside};
use super::super::troubles::TooMuch;
use super::{Services, key_of};
use crate::decisions::Cause;
use crate::guests::lbaas::Desired;
use crate::guests::lbaas::adapter::Key;
use crate::swap::Fallen;

impl<T: FnMut(Event)> Services<'_, T> {
    /// Starts a job, unless exactly this input is set aside.
    pub(super) fn start_or_hold(&mut self, key: Key, desired: Option<Desired>) {
        let instance = key.to_string();
        let held = if self.quarantine.has(&instance) {
            let instances = self.shared.active.instances();
            let digest = instances.program.guest.digest.to_string();
            let input = quarantine::input(&instances, &desired);
            self.quarantine.holds(&instance, &input, &digest)
        } else {
            None
        };
        let Some(held) = held else {
            if let Some(released) = self.quarantine.release(&instance) {
                self.pending.because(&key, SystemClock.now_ms(), released.cause());
            }
            self.start(key, desired);
            return;
        };
        self.setup.board.set_aside(&instance, &held.error, held.failures);
        self.controller.done(&key, Outcome::Success, self.now_ms());
        let is_told = self
            .standing
            .get(&key)
            .is_some_and(|standing| standing.as_ref().err() == Some(&held.error));
        if !is_told {
            self.tell_set_aside(&held);
            // The process that set it aside may have ended before another version was active.
            self.wish_to_fall_back(&held);
            self.standing.insert(key, Err(held.error));
        }
    }

    /// What is applied stays as it is, until the input or the guest changes.
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
        // Whoever is told finds it so.
        if let Err(error) = self.quarantine.set_aside(&about, entry.clone()) {
            tracing::warn!(%key, "it is set aside until the next start alone: {error}");
        }
        self.setup.board.set_aside(&entry.instance, &error, failures);
        self.tell_set_aside(&entry);
        self.wish_to_fall_back(&entry);
        self.standing.insert(key, Err(error));
    }

    /// Where the failure policy says so, another version becomes active, which releases what is set aside. One wish at a
    /// time: the others that fail meanwhile are released by the same version.
    pub(super) fn wish_to_fall_back(&mut self, entry: &SetAside) {
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
        if let Some(key) = key_of(&entry.instance) {
            self.shared.publish.say(&key, News::SetAside(&entry.error));
        }
        (self.tell)(Event::Quarantined {
            key: entry.instance.clone(),
            error: entry.error.clone(),
            failures: entry.failures,
            journal: entry.journal.clone(),
        });
    }

    /// Another version is active from here on: calls that run end on theirs, those that sleep end now. What was set aside,
    /// or waits because the guest failed, is tried again.
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
            for running in self.running.values() {
                running.interrupt.want();
            }
            self.versions += 1;
            let now_ms = self.now_ms();
            let released = self.quarantine.release_all();
            let mut again = self.troubles.forget_all();
            again.extend(released.iter().filter_map(|entry| key_of(&entry.instance)));
            let since_ms = SystemClock.now_ms();
            for key in &again {
                self.pending.because(key, since_ms, cause.clone());
            }
            for entry in &released {
                if let Some(key) = key_of(&entry.instance) {
                    self.pending.because(&key, since_ms, entry.cause());
                }
            }
            self.became_active = Some(cause);
            for key in again {
                self.setup.board.changed(&key.to_string());
                if let Err(error) = self.controller.changed(&key, now_ms) {
                    tracing::error!(%key, "{error}");
                }
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
