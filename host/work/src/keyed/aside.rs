//! Inputs that are set aside, and new versions of the guest, which try them again.

use trueup_base::clock::{Clock as _, SystemClock};

use super::{KeyProblem, Keyed, Reconciler};
use crate::decisions::Cause;
use crate::event::Event;
use crate::lifecycle::active::Handover;
use crate::lifecycle::quarantine::SetAside;

impl<W: Reconciler, T: FnMut(Event)> Keyed<W, T> {
    /// Starts a turn, unless exactly this input is set aside.
    pub(super) fn start_or_hold(&mut self, key: W::Key, desired: W::Desired) {
        let instance = key.to_string();
        let held = if self.supervisor.has(&instance) {
            let version = self.world.version(self.shared.active.instances(), &desired);
            self.supervisor.held(&version, &instance, &desired)
        } else {
            None
        };
        let Some(held) = held else {
            if let Some(released) = self.supervisor.release(&instance) {
                self.pending.because(&key, SystemClock.now_ms(), Cause::from(&released));
            }
            self.start(key, desired);
            return;
        };
        self.rest(&key);
        let is_new = self.is_new(&key, &held.error);
        self.show_set_aside(key, held, is_new);
    }

    /// Sets the input aside. What is applied stays as it is until the input or the guest changes.
    pub(super) fn set_aside(&mut self, key: W::Key, entry: SetAside) {
        self.world.rest(&key, false);
        // Write it before the operator sees the event, so that it is already there.
        let about = self.shared.active.instances().identity(&entry.instance);
        self.supervisor.put(&about, &entry);
        self.show_set_aside(key, entry, true);
    }

    fn show_set_aside(&mut self, key: W::Key, entry: SetAside, is_new: bool) {
        self.host_status
            .set_aside(W::RULES.guest, &entry.instance, &entry.error, entry.failures);
        if is_new {
            self.world.publish_problem(&key, KeyProblem::SetAside(&entry.error));
            (self.report)(Event::from(&entry));
            // Also for an old entry: the process that wrote it may have ended before another version became active.
            self.supervisor.fall_backs.request(W::RULES.guest, &entry);
            self.last_results.insert(key, Err(entry.error));
        }
    }

    /// Another version is active from here on. Running calls end on their version; sleeping ones that may be cut end
    /// now. The new version reconciles every key, including those that were set aside or back off because the guest
    /// failed.
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
            self.cut_calls();
            self.versions += 1;
            self.try_with_new_version(&cause);
            self.became_active = Some(cause);
        }
        // The caller may have disconnected; the version is active all the same.
        let _ = reply.send(committed);
    }

    fn try_with_new_version(&mut self, cause: &Cause) {
        let since_ms = SystemClock.now_ms();
        let (released, failed) = self.supervisor.began_version();
        let mut again: Vec<W::Key> = failed.iter().filter_map(|name| name.parse().ok()).collect();
        for key in &again {
            self.pending.because(key, since_ms, cause.clone());
        }
        for entry in &released {
            if let Ok(key) = entry.instance.parse::<W::Key>() {
                self.pending.because(&key, since_ms, cause.clone());
                self.pending.because(&key, since_ms, Cause::from(entry));
                again.push(key);
            }
        }
        self.all_again(cause);
        for key in &again {
            self.queue_anew(key);
        }
    }
}
