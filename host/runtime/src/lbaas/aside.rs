//! Inputs that are set aside, and new versions of the guest, which try them again.

use trueup_base::clock::{Clock as _, SystemClock};
use trueup_controller::Outcome;

use super::{Services, key_of};
use crate::decisions::Cause;
use crate::event::Event;
use crate::guests::lbaas::adapter::Key;
use crate::guests::lbaas::{self, Desired};
use crate::lifecycle::active::Handover;
use crate::lifecycle::quarantine;
use crate::lifecycle::quarantine::SetAside;
use crate::lifecycle::troubles::TooMuch;
use crate::work::publish::News;

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
                self.pending.because(&key, SystemClock.now_ms(), Cause::from(&released));
            }
            self.start(key, desired);
            return;
        };
        self.setup
            .board
            .set_aside(lbaas::NAME, &instance, &held.error, held.failures);
        self.controller.done(&key, Outcome::Success, self.now_ms());
        let is_told = self
            .standing
            .get(&key)
            .is_some_and(|standing| standing.as_ref().err() == Some(&held.error));
        if !is_told {
            self.tell_set_aside(&held);
            // The process that set it aside may have ended before another version became active.
            self.falling.wish(&held);
            self.standing.insert(key, Err(held.error));
        }
    }

    /// Sets the input aside. What is applied stays as it is until the input or the guest changes.
    pub(super) fn set_aside(&mut self, key: Key, input: String, too_much: TooMuch) {
        let instances = self.shared.active.instances();
        let about = instances.identity(&key.to_string());
        let entry = SetAside::new(&instances, key.to_string(), input, too_much);
        // Write it before the operator sees the event, so that it is already there.
        if let Err(error) = self.quarantine.set_aside(&about, entry.clone()) {
            tracing::warn!(%key, "it is set aside until the next start alone: {error}");
        }
        self.setup
            .board
            .set_aside(lbaas::NAME, &entry.instance, &entry.error, entry.failures);
        self.tell_set_aside(&entry);
        self.falling.wish(&entry);
        self.standing.insert(key, Err(entry.error));
    }

    fn tell_set_aside(&mut self, entry: &SetAside) {
        if let Some(key) = key_of(&entry.instance) {
            self.shared.publish.say(&key, News::SetAside(&entry.error));
        }
        (self.tell)(Event::from(entry));
    }

    /// Another version is active from here on. Running calls end on their version; sleeping ones end now. The new
    /// version reconciles every key, including those that were set aside or back off because the guest failed.
    pub(super) fn hand_over(&mut self, handover: Handover) {
        let Handover {
            instances,
            commit,
            reply,
        } = handover;
        let committed = commit();
        if committed.is_ok() {
            let cause = Cause::became_active(&self.shared.active.instances(), &instances);
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
                    self.pending.because(&key, since_ms, Cause::from(entry));
                }
            }
            self.became_active = Some(cause.clone());
            self.all_again(&cause);
            for key in again {
                self.setup.board.changed(lbaas::NAME, &key.to_string());
                if let Err(error) = self.controller.changed(&key, now_ms) {
                    tracing::error!(%key, "{error}");
                }
            }
        }
        // The caller may have disconnected; the version is active all the same.
        let _ = reply.send(committed);
    }
}
