//! Begins turns, if there is room for one more, and handles their ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;
use tokio::time::Instant;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::Backends;
use trueup_capabilities::meter::Effects;
use trueup_controller::Outcome;

use super::turn::{CutCalls, Done, Turn};
use super::{KeyProblem, Keyed, Reconciler, Running, Wanted};
use crate::decisions::{self, Cause, JobRecorder, JobResult};
use crate::event::Event;
use crate::keyed::interrupt::{Interrupt, Waits};
use crate::lifecycle::active::Handover;
use crate::lifecycle::failure::{Blame, End, Failure};
use crate::lifecycle::failure_counts::FAILURES_MAX_ONCE;
use crate::lifecycle::quarantine::{self, SetAside};
use crate::slot::InstanceSlot;
use crate::status::{self, Finished};

/// If a key waits and all jobs are taken, the call that has slept for the longest gives way, at the earliest after this
/// long. A key waits no longer than that for its first call.
const GIVES_WAY_AFTER: Duration = Duration::from_secs(2);

/// When a key that comes after others is looked at again: their turns take about as long.
const AFTER_OTHERS_MS: u64 = 50;

/// The error of a call that gave way to another key and did not sleep.
const COMPUTED_FOR_LONG: &str = "the guest computed for long while many other keys waited, and gave way to them";

/// A key whose call gave way runs again after this many milliseconds. Keys that sleep for ever then take turns so
/// seldom that restarting them costs little.
const GAVE_WAY_PAUSE_MS: u64 = 30_000;

/// The end of a turn's task.
type Joined<W> = Result<(tokio::task::Id, Done<<W as Reconciler>::Key, <W as Reconciler>::Out>), JoinError>;

impl<W: Reconciler> Keyed<'_, W> {
    pub(super) fn has_room(&self) -> bool {
        let awake = self.jobs.len().saturating_sub(self.shared.sleepers.count());
        self.context.leadership.may_act() && awake < self.workers && self.jobs.len() < W::RULES.jobs_max
    }

    /// If a key is due and no job slot is free, ends another call that may be cut: one that sleeps before one that
    /// computes for long, and of each kind the one that began first.
    pub(super) fn make_room(&mut self) {
        let now_ms = self.now_ms();
        let is_due = self.controller.next_due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let may = W::RULES.cut == CutCalls::Dropped && self.context.leadership.may_act();
        let gives_way = |running: &Running<W::Desired>| running.gives_way.is_some();
        if !may || !is_due || self.jobs.len() < W::RULES.jobs_max || self.running.values().any(gives_way) {
            return;
        }
        let candidates = self.running.values_mut().filter_map(|running| {
            let waits = running.interrupt.waits()?;
            (running.began.elapsed() >= GIVES_WAY_AFTER).then_some((waits, running.began, running))
        });
        if let Some((waits, _, running)) = candidates.min_by_key(|(waits, began, _)| (*waits, *began)) {
            running.gives_way = Some(waits);
            running.interrupt.want();
        }
    }

    pub(super) fn start_jobs(&mut self) {
        while self.has_room()
            && let Some(key) = self.controller.take_ready(self.now_ms())
        {
            match self.world.wanted(&key) {
                Wanted::Work(_) if self.holdings().comes_after_others(&key.to_string()) => {
                    self.requeue(&key, Outcome::Interrupted(AFTER_OTHERS_MS));
                }
                Wanted::Work(desired) => self.start_or_hold(key, desired),
                Wanted::Refused(error) => self.refuse(key, error),
                Wanted::Waits(why) => {
                    self.keep_held(true);
                    self.refuse(key, self.with_hint(&why));
                }
                Wanted::Held => {
                    self.hold(key.clone());
                    self.rest(&key);
                }
                Wanted::Nothing => {
                    self.host_status.gone(W::RULES.guest, &key.to_string());
                    self.controller.forget(&key);
                    self.holdings().forget(&key.to_string());
                    self.rest(&key);
                }
                Wanted::Forget => {
                    self.supervisor.quarantine.release(&key.to_string());
                    self.rest(&key);
                    self.forget(&key);
                }
            }
        }
    }

    /// Ends the key's turn without calls.
    pub(super) fn rest(&mut self, key: &W::Key) {
        self.world.rest(key, false);
        self.holdings().turn_ended(&key.to_string());
        self.requeue(key, Outcome::Success);
    }

    /// The desired state can't be computed. Nothing changes until the input does.
    fn refuse(&mut self, key: W::Key, error: String) {
        // The entry was for another input.
        self.supervisor.quarantine.release(&key.to_string());
        self.host_status.refused(W::RULES.guest, &key.to_string(), &error);
        self.rest(&key);
        if self.is_new(&key, &error) {
            self.world.publish_problem(&key, KeyProblem::Refused(&error));
            let came = JobResult::Refused { error: error.clone() };
            self.decided(&key).end(came, Effects::default());
            (self.context.report)(Event::Failed {
                key: key.to_string(),
                error: error.clone(),
                again_in_ms: None,
            });
        }
        self.last_results.insert(key, Err(error));
    }

    /// Whether the key did not fail in this way before.
    pub(super) fn is_new(&self, key: &W::Key, error: &str) -> bool {
        let result = self.last_results.get(key);
        result.is_none_or(|result| result.as_ref().err().is_none_or(|before| before != error))
    }

    /// A turn of this key is about to begin. Records why.
    fn decided(&mut self, key: &W::Key) -> JobRecorder {
        let failures = self.failures(key);
        let result = self.last_results.get(key);
        let start = self.pending.start.clone();
        let otherwise = || match self.controller.status(key).and_then(|status| status.last) {
            None => start,
            Some(Outcome::Success) => Cause::Resync { by_operator: false },
            Some(Outcome::Interrupted(_)) => Cause::Interrupted,
            Some(Outcome::Failure | Outcome::RetryAfter(_)) => Cause::Retry {
                failures,
                error: result.and_then(|it| it.clone().err()).unwrap_or_default(),
            },
        };
        let why = self.pending.begin(key, SystemClock.now_ms(), otherwise);
        let instances = self.shared.active.instances();
        let key = key.to_string();
        let file = decisions::path(&instances.state_dir, instances.name, &key);
        JobRecorder::new(Some(file), key, why, failures)
    }

    pub(super) fn start(&mut self, key: W::Key, desired: W::Desired) {
        self.held.remove(&key);
        if let Err(error) = self.world.prepare(&key, &desired) {
            return self.fail(&key, error);
        }
        let instance = key.to_string();
        let slot = self.idle.pop(&instance).unwrap_or_else(|| {
            let active = Arc::clone(&self.shared.active);
            InstanceSlot::new(active, &instance, Backends::default())
        });
        let interrupt: Arc<Interrupt> = Arc::default();
        self.host_status.began(W::RULES.guest, &instance);
        let fence = self.context.leadership.fence().of_this_epoch();
        let decided = self.decided(&key);
        let running = Running {
            interrupt: Arc::clone(&interrupt),
            began: Instant::now(),
            gives_way: None,
            fence: fence.clone(),
            desired: desired.clone(),
            version: self.versions,
            // What waited or failed before is no change by others.
            is_resync: decided.is_resync() && !self.last_results.get(&key).is_some_and(Result::is_err),
        };
        self.running.insert(key.clone(), running);
        let turn = Turn::new(Arc::clone(&self.shared), slot, decided, fence, interrupt);
        let task = self.jobs.spawn(self.world.turn(&key, desired, turn));
        self.tasks.insert(task.id(), key);
    }

    /// The turn can't begin, because of the host.
    fn fail(&mut self, key: &W::Key, error: String) {
        self.holdings().turn_ended(&key.to_string());
        let again_in_ms = self.requeue(key, Outcome::Failure);
        self.host_status.refused(W::RULES.guest, &key.to_string(), &error);
        self.failed(key, error, self.failures(key), again_in_ms);
    }

    // The end of a turn.

    pub(super) fn finish(&mut self, done: Joined<W>) {
        let Some(mut done) = self.done(done) else { return };
        // A turn that ends has begun.
        let Some(running) = self.running.remove(&done.key) else {
            return;
        };
        self.effects += done.effects;
        self.world.ended(&done.key, done.slot.as_ref(), &mut done.out);
        let is_open = done.slot.is_some();
        // Keeps the instance for its key's next turn. Syncs the recording of one that it drops instead to disk.
        if let Some(slot) = done.slot.take()
            && let Some((_, mut longest_idle)) = self.idle.push(slot.key().to_owned(), slot)
        {
            longest_idle.sync();
        }
        done.end = self.judged(&done.key, done.end, &running);
        if !matches!(&done.end, Err(failure) if failure.blame == Blame::Cut) {
            self.holdings().turn_ended(&done.key.to_string());
        }
        if done.end.is_err() {
            *self.unreported.entry(done.key.clone()).or_default() += done.effects;
        }
        match self.trouble(&done, &running) {
            Some(entry) => {
                self.requeue(&done.key, Outcome::Success);
                self.show(&done, 0, None);
                self.set_aside(done.key, entry);
            }
            None => self.settle(done, &running, is_open),
        }
    }

    /// The turn of a key ended. In how many milliseconds the key gets its next one, as the queue says.
    fn requeue(&mut self, key: &W::Key, outcome: Outcome) -> Option<u64> {
        let now_ms = self.now_ms();
        Some(self.controller.done(key, outcome, now_ms)?.saturating_sub(now_ms))
    }

    /// The result of a turn. A turn that ended without one counts as failed. `None` if the task has no key.
    fn done(&mut self, done: Joined<W>) -> Option<Done<W::Key, W::Out>> {
        match done {
            Ok((id, done)) => {
                self.tasks.remove(&id);
                Some(done)
            }
            // A defect of the host, or an aborted turn. Its key fails; the others go on.
            Err(error) => Some(Done {
                key: self.tasks.remove(&error.id())?,
                slot: None,
                end: Err(Failure::from(format!("its job ended without a result: {error}"))),
                effects: Effects::default(),
                changes: Vec::new(),
                out: W::Out::default(),
            }),
        }
    }

    /// What the end of a turn says about its key.
    fn judged(&self, key: &W::Key, mut end: End, running: &Running<W::Desired>) -> End {
        if let Err(failure) = &mut end {
            let may_act = running.fence.may_act() && self.context.leadership.may_act();
            match (failure.blame, running.gives_way) {
                // A failure says nothing about the key if the host had no right to act, or if the turn began in an
                // earlier epoch.
                (Blame::Host, _) if !may_act => *failure = Failure::cut(),
                (Blame::Cut, Some(Waits::ForTurn)) => *failure = Failure::of_guest(COMPUTED_FOR_LONG),
                _ => {}
            }
            // If the turn was not allowed to destroy, that is its error, whatever the guest reported.
            if failure.blame == Blame::Host
                && let Some(why) = self.holdings().refusal(&key.to_string())
            {
                failure.error = self.with_hint(&why);
            }
        }
        end
    }

    /// Whether to set the key aside after this turn. Ignores turns of a version that is no longer active.
    fn trouble(&mut self, done: &Done<W::Key, W::Out>, running: &Running<W::Desired>) -> Option<SetAside> {
        if running.version != self.versions {
            return None;
        }
        let version = self.world.version(self.shared.active.instances(), &running.desired);
        let input = quarantine::input(&version, &running.desired);
        let key = done.key.to_string();
        let too_much = self.supervisor.failures.after(&key, &input, &done.end, &done.changes)?;
        Some(SetAside::new(&version, key, input, too_much))
    }

    fn settle(&mut self, done: Done<W::Key, W::Out>, running: &Running<W::Desired>, is_open: bool) {
        let outcome = match &done.end {
            Err(failure) if failure.blame == Blame::Cut && running.gives_way.is_some() => {
                Outcome::Interrupted(GAVE_WAY_PAUSE_MS)
            }
            end => self.world.outcome(end, &done.out, is_open),
        };
        let again_in_ms = self.requeue(&done.key, outcome);
        let queued = (self.failures(&done.key), again_in_ms);
        let (failures, again_in_ms) = self.world.retry(&done.key, &done.end, &done.out, (outcome, queued));
        self.show(&done, failures, again_in_ms);
        let key = done.key;
        let mut effects = done.effects;
        match done.end {
            Ok(gone) => {
                let unreported = self.unreported.remove(&key);
                if running.is_resync && unreported.is_none() {
                    self.resynced(&key, effects);
                }
                effects += unreported.unwrap_or_default();
                match self.world.succeeded(&key, gone, effects, done.out) {
                    Ok(event) => self.succeeded(key, gone, event),
                    Err(error) => self.failed(&key, error, FAILURES_MAX_ONCE, None),
                }
            }
            Err(Failure { blame: Blame::Cut, .. }) => {
                if let Some(cause) = self.became_active.clone().filter(|_| running.version != self.versions) {
                    self.because(&key, cause);
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
        (self.context.report)(event);
        self.last_results.insert(key.clone(), Ok(()));
        if gone {
            self.forget(&key);
        }
        self.keep_held(false);
    }

    /// The key failed. With `once`, it is given up if it failed too often or waits for an approval.
    pub(super) fn failed(&mut self, key: &W::Key, error: String, failures: u32, again_in_ms: Option<u64>) {
        let waits = self.holdings().refusal(&key.to_string()).is_some();
        let is_given_up = self.context.once && (failures >= FAILURES_MAX_ONCE || waits && self.object_counts.is_known);
        if is_given_up {
            self.controller.forget(key);
            self.world.rest(key, true);
        }
        self.world.publish_problem(key, KeyProblem::Failed(&error));
        (self.context.report)(Event::Failed {
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
        if !self.context.once {
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
        let key = done.key.to_string();
        self.host_status.finished(W::RULES.guest, &key, finished);
    }

    // Inputs that are set aside, and new versions of the guest, which try them again.

    /// Starts a turn, unless exactly this input is set aside.
    pub(super) fn start_or_hold(&mut self, key: W::Key, desired: W::Desired) {
        let instance = key.to_string();
        let has = self.supervisor.quarantine.has(&instance);
        let version = has.then(|| self.world.version(self.shared.active.instances(), &desired));
        let held = version.and_then(|version| self.supervisor.held(&version, &instance, &desired));
        let Some(held) = held else {
            if let Some(released) = self.supervisor.quarantine.release(&instance) {
                self.because(&key, Cause::from(&released));
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
        let name = &entry.instance;
        let error = &entry.error;
        self.host_status.set_aside(W::RULES.guest, name, error, entry.failures);
        if is_new {
            self.world.publish_problem(&key, KeyProblem::SetAside(&entry.error));
            (self.context.report)(Event::from(&entry));
            // Also for an old entry: the process that wrote it may have ended before another version became active.
            self.supervisor.fall_backs.request(W::RULES.guest, &entry);
            self.last_results.insert(key, Err(entry.error));
        }
    }

    /// Another version is active from here on. Running calls end on their version; sleeping ones that may be cut end
    /// now. The new version reconciles every key, including those that were set aside or back off because the guest
    /// failed.
    pub(super) fn hand_over(&mut self, handover: Handover) {
        let committed = (handover.commit)();
        if committed.is_ok() {
            let cause = Cause::became_active(&self.shared.active.instances(), &handover.instances);
            self.shared.active.set(handover.instances);
            self.cut_calls();
            self.versions += 1;
            self.try_with_new_version(&cause);
            self.became_active = Some(cause);
        }
        // The caller may have disconnected; the version is active all the same.
        let _ = handover.reply.send(committed);
    }

    fn try_with_new_version(&mut self, cause: &Cause) {
        let (released, failed) = self.supervisor.began_version();
        let mut again: Vec<W::Key> = failed.iter().filter_map(|name| name.parse().ok()).collect();
        for key in &again {
            self.because(key, cause.clone());
        }
        for entry in &released {
            if let Ok(key) = entry.instance.parse::<W::Key>() {
                self.because(&key, cause.clone());
                self.because(&key, Cause::from(entry));
                again.push(key);
            }
        }
        self.all_again(cause);
        for key in &again {
            self.queue_anew(key);
        }
    }
}
