//! Handles a finished turn.

use tokio::task::JoinError;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::meter::Effects;
use trueup_controller::Outcome;

use super::turn::Done;
use super::{KeyProblem, Keyed, Reconciler, Running};
use crate::event::Event;
use crate::keyed::interrupt::Waits;
use crate::lifecycle::failure::{Blame, End, Failure};
use crate::lifecycle::failure_counts::FAILURES_MAX_ONCE;
use crate::lifecycle::quarantine::{self, SetAside};
use crate::slot::InstanceSlot;
use crate::status::{self, Finished};

/// The error of a call that gave way to another key and did not sleep.
const COMPUTED_FOR_LONG: &str = "the guest computed for long while many other keys waited, and gave way to them";

/// A key whose call gave way runs again after this many milliseconds. Keys that sleep for ever then take turns so
/// seldom that restarting them costs little.
const GAVE_WAY_PAUSE_MS: u64 = 30_000;

/// The end of a turn's task.
type Joined<W> = Result<(tokio::task::Id, Done<<W as Reconciler>::Key, <W as Reconciler>::Out>), JoinError>;

impl<W: Reconciler, T: FnMut(Event)> Keyed<W, T> {
    pub(super) fn finish(&mut self, done: Joined<W>) {
        let Some(mut done) = self.done(done) else { return };
        let running = self.running.remove(&done.key);
        self.effects += done.effects;
        self.world.ended(&done.key, done.slot.as_ref(), &mut done.out);
        let is_open = done.slot.is_some();
        if let Some(slot) = done.slot.take() {
            self.let_rest(slot);
        }
        done.end = self.judged(&done.key, done.end, running.as_ref());
        if !matches!(&done.end, Err(failure) if failure.blame == Blame::Cut) {
            self.holdings().turn_ended(&done.key.to_string());
        }
        if done.end.is_err() {
            *self.unreported.entry(done.key.clone()).or_default() += done.effects;
        }
        match running.as_ref().and_then(|running| self.trouble(&done, running)) {
            Some(entry) => {
                self.controller.done(&done.key, Outcome::Success, self.now_ms());
                self.show(&done, 0, None);
                self.set_aside(done.key, entry);
            }
            None => self.settle(done, running.as_ref(), is_open),
        }
    }

    /// Keeps the instance for its key's next turn. Syncs the recording of one that it drops instead to disk.
    fn let_rest(&mut self, slot: InstanceSlot) {
        if let Some((_, mut longest_idle)) = self.idle.push(slot.key().to_owned(), slot) {
            longest_idle.sync();
        }
    }

    /// The result of a turn. A turn that ended without one counts as failed. `None` if the task has no key.
    fn done(&mut self, done: Joined<W>) -> Option<Done<W::Key, W::Out>> {
        let error = match done {
            Ok((id, done)) => {
                self.tasks.remove(&id);
                return Some(done);
            }
            Err(error) => error,
        };
        // A defect of the host, or an aborted turn. Its key fails; the others go on.
        let key = self.tasks.remove(&error.id())?;
        let end = Err(Failure::from(format!("its job ended without a result: {error}")));
        Some(Done {
            key,
            slot: None,
            end,
            effects: Effects::default(),
            changes: Vec::new(),
            out: W::Out::default(),
        })
    }

    /// What the end of a turn says about its key.
    fn judged(&self, key: &W::Key, mut end: End, running: Option<&Running<W::Desired>>) -> End {
        // A failure says nothing about the key if the host had no right to act, or if the turn began in an earlier
        // epoch.
        let is_past = running.is_some_and(|running| !running.fence.may_act());
        let gave_way = running.and_then(|running| running.gives_way);
        if let Err(failure) = &mut end {
            match failure.blame {
                Blame::Host if is_past || !self.leadership.may_act() => *failure = Failure::cut(),
                Blame::Cut if gave_way == Some(Waits::ForTurn) => *failure = Failure::of_guest(COMPUTED_FOR_LONG),
                _ => {}
            }
        }
        self.waits(key, end)
    }

    /// Whether to set the key aside after this turn. Ignores turns of a version that is no longer active.
    fn trouble(&mut self, done: &Done<W::Key, W::Out>, running: &Running<W::Desired>) -> Option<SetAside> {
        if running.version != self.versions {
            return None;
        }
        let version = self.world.version(self.shared.active.instances(), &running.desired);
        let input = quarantine::input(&version, &running.desired);
        let key = done.key.to_string();
        let too_much = self.supervisor.ended(&key, &input, &done.end, &done.changes)?;
        Some(SetAside::new(&version, key, input, too_much))
    }

    fn settle(&mut self, done: Done<W::Key, W::Out>, running: Option<&Running<W::Desired>>, is_open: bool) {
        let outcome = match &done.end {
            Err(failure)
                if failure.blame == Blame::Cut && running.is_some_and(|running| running.gives_way.is_some()) =>
            {
                Outcome::Interrupted(GAVE_WAY_PAUSE_MS)
            }
            end => self.world.outcome(end, &done.out, is_open),
        };
        let now_ms = self.now_ms();
        let due_ms = self.controller.done(&done.key, outcome, now_ms);
        let again_in_ms = due_ms.map(|due_ms| due_ms.saturating_sub(now_ms));
        let queued = (self.failures(&done.key), again_in_ms);
        let (failures, again_in_ms) = self.world.retry(&done.key, &done.end, &done.out, (outcome, queued));
        self.show(&done, failures, again_in_ms);
        let is_other_version = running.is_some_and(|running| running.version != self.versions);
        let is_resync = running.is_some_and(|running| running.is_resync);
        let (key, mut effects) = (done.key, done.effects);
        match done.end {
            Ok(gone) => {
                let unreported = self.unreported.remove(&key);
                if is_resync && unreported.is_none() {
                    self.resynced(&key, effects);
                }
                effects += unreported.unwrap_or_default();
                match self.world.succeeded(&key, gone, effects, done.out) {
                    Ok(event) => self.succeeded(key, gone, event),
                    Err(error) => self.failed(&key, error, FAILURES_MAX_ONCE, None),
                }
            }
            Err(Failure { blame: Blame::Cut, .. }) => {
                if let Some(cause) = self.became_active.clone().filter(|_| is_other_version) {
                    self.pending.because(&key, SystemClock.now_ms(), cause);
                }
            }
            Err(Failure { error, .. }) => self.failed(&key, error, failures, again_in_ms),
        }
    }

    /// A resync succeeded. If it changed anything, others had changed the objects of the key.
    fn resynced(&self, key: &W::Key, Effects { created, destroyed }: Effects) {
        let corrected = created + destroyed > 0;
        if self.host_status.resynced(W::RULES.guest, &key.to_string(), corrected) == 1 {
            tracing::warn!(
                %key,
                created,
                destroyed,
                "its objects were changed by others since they were as they should be, and are so again: look for another host \
                 with the same `cluster`, or for someone who changes them by hand"
            );
        }
    }

    fn succeeded(&mut self, key: W::Key, gone: bool, event: Option<Event>) {
        let Some(event) = event else {
            self.last_results.entry(key).or_insert(Ok(()));
            return;
        };
        (self.report)(event);
        self.last_results.insert(key.clone(), Ok(()));
        if gone {
            self.forget(&key);
        }
        self.keep_held(false);
    }

    /// The key failed. With `once`, it is given up if it failed too often or waits for an approval.
    pub(super) fn failed(&mut self, key: &W::Key, error: String, failures: u32, again_in_ms: Option<u64>) {
        let waits = self.holdings().refusal(&key.to_string()).is_some();
        let is_given_up = self.once && (failures >= FAILURES_MAX_ONCE || waits && self.object_counts.is_known());
        if is_given_up {
            self.controller.forget(key);
            self.world.rest(key, true);
        }
        self.world.publish_problem(key, KeyProblem::Failed(&error));
        (self.report)(Event::Failed {
            key: key.to_string(),
            error: error.clone(),
            again_in_ms: again_in_ms.filter(|_| !is_given_up),
        });
        self.last_results.insert(key.clone(), Err(error));
    }

    /// How often in a row the key failed, as the queue says.
    pub(super) fn failures(&self, key: &W::Key) -> u32 {
        self.controller.status(key).map_or(0, |status| status.failures)
    }

    /// Removes the state of a key of which nothing is left, unless it came back meanwhile.
    pub(super) fn forget(&mut self, key: &W::Key) {
        if let Some(mut slot) = self.idle.pop(&key.to_string()) {
            slot.sync();
        }
        if self.world.is_desired(key) {
            return;
        }
        self.controller.forget(key);
        self.pending.forget(key);
        self.unreported.remove(key);
        if !self.once {
            self.last_results.remove(key);
        }
        self.supervisor.succeeded(&key.to_string());
        self.metrics.forget(&key.to_string());
        self.holdings().forget(&key.to_string());
        self.host_status.gone(W::RULES.guest, &key.to_string());
        self.world.forget(key);
        if let Err(error) = self.shared.active.instances().forget(&key.to_string()) {
            tracing::warn!(%key, "its state is not removed: {error}");
        }
    }

    /// Shows the result of a turn in the status.
    fn show(&self, done: &Done<W::Key, W::Out>, failures: u32, again_in_ms: Option<u64>) {
        let (outcome, error) = match &done.end {
            Ok(false) => (status::Outcome::True, None),
            Ok(true) => (status::Outcome::Gone, None),
            Err(Failure { error, blame, .. }) => match blame {
                Blame::Cut => (status::Outcome::Interrupted, None),
                Blame::Host => (status::Outcome::Failed, Some(error.clone())),
                Blame::Guest => (status::Outcome::Fault, Some(error.clone())),
            },
        };
        let finished = Finished {
            outcome,
            took: None,
            error,
            failures,
            again_in_ms,
            effects: done.effects,
            in_service: W::in_service(&done.out),
        };
        self.host_status
            .finished(W::RULES.guest, &done.key.to_string(), finished);
    }
}
