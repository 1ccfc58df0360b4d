//! Inputs that are set aside, and new versions of the guest, which try them again.

use trueup_base::clock::{Clock as _, SystemClock};

use super::{Negs, Wanted, job};
use crate::decisions::Cause;
use crate::event::Event;
use crate::guests::neg::NAME;
use crate::guests::neg::adapter::Key;
use crate::lifecycle::active::Handover;
use crate::lifecycle::quarantine;
use crate::lifecycle::quarantine::SetAside;
use crate::lifecycle::troubles::TooMuch;

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
                self.pending.because(&key, SystemClock.now_ms(), Cause::from(&released));
            }
            self.start(key, wanted);
            return;
        };
        self.setup.board.set_aside(NAME, &instance, &held.error, held.failures);
        self.rest(&key);
        let standing = Some(Err(held.error.clone()));
        if self.entry(&key).standing != standing {
            (self.tell)(Event::from(&held));
            // The process that set it aside may have ended before another version became active.
            self.falling.wish(&held);
            self.entry(&key).standing = standing;
        }
    }

    /// Sets the input aside. The NEGs stay as they are until the input or the guest changes.
    pub(super) fn set_aside(&mut self, key: Key, input: String, too_much: TooMuch) {
        let instances = self.shared.active.instances();
        let about = instances.identity(&key.to_string());
        let entry = SetAside::new(&instances, key.to_string(), input, too_much);
        self.set_alarm(&key, None);
        // Write it before the operator sees the event, so that it is already there.
        if let Err(error) = self.quarantine.set_aside(&about, entry.clone()) {
            tracing::warn!(%key, "it is set aside until the next start alone: {error}");
        }
        self.setup
            .board
            .set_aside(NAME, &entry.instance, &entry.error, entry.failures);
        (self.tell)(Event::from(&entry));
        self.falling.wish(&entry);
        self.entry(&key).standing = Some(Err(entry.error));
    }

    /// Another version is active from here on. Running calls end on their version. Each instance moves with its state
    /// at its key's next job. Every key gets one now, including those that were set aside or back off because the
    /// guest failed.
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
            self.versions += 1;
            let since_ms = SystemClock.now_ms();
            let released = self.quarantine.release_all();
            let mut again = self.troubles.forget_all();
            for entry in &released {
                let Ok(key) = entry.instance.parse::<Key>() else {
                    continue;
                };
                self.pending.because(&key, since_ms, Cause::from(entry));
                again.push(key);
            }
            self.became_active = Some(cause.clone());
            self.all_again(&cause);
            for key in again {
                self.pending.because(&key, since_ms, cause.clone());
                self.entry(&key).inbox.sync = true;
                self.changed(&key);
            }
        }
        // The caller may have disconnected; the version is active all the same.
        let _ = reply.send(committed);
    }
}
