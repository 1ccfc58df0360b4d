//! Begins turns: whether there is room for one more, and which call makes room if there is none.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::Backends;
use trueup_capabilities::meter::Effects;
use trueup_controller::Outcome;

use super::turn::{CutCalls, Turn};
use super::{KeyProblem, Keyed, Reconciler, Running, Wanted};
use crate::decisions::{Cause, JobRecorder, JobResult};
use crate::event::Event;
use crate::keyed::interrupt::Interrupt;
use crate::slot::InstanceSlot;

/// If a key waits and all jobs are taken, the call that has slept for the longest gives way, at the earliest after this
/// long. A key waits no longer than that for its first call.
const GIVES_WAY_AFTER: Duration = Duration::from_secs(2);

/// When a key that comes after others is looked at again: their turns take about as long.
const AFTER_OTHERS_MS: u64 = 50;

impl<W: Reconciler, T: FnMut(Event)> Keyed<W, T> {
    pub(super) fn has_room(&self) -> bool {
        let awake = self.jobs.len().saturating_sub(self.shared.sleepers.count());
        self.leadership.may_act() && awake < self.workers && self.jobs.len() < W::RULES.jobs_max
    }

    /// If a key is due and no job slot is free, ends another call that may be cut: one that sleeps before one that
    /// computes for long, and of each kind the one that began first.
    pub(super) fn make_room(&mut self) {
        let now_ms = self.now_ms();
        let is_due = self.controller.next_due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let may = W::RULES.cut == CutCalls::Dropped && self.leadership.may_act();
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
        while self.has_room() {
            let Some(key) = self.controller.take_ready(self.now_ms()) else {
                return;
            };
            match self.world.wanted(&key) {
                Wanted::Work(_) if self.holdings().comes_after_others(&key.to_string()) => {
                    self.controller
                        .done(&key, Outcome::Interrupted(AFTER_OTHERS_MS), self.now_ms());
                }
                Wanted::Work(desired) => self.start_or_hold(key, desired),
                Wanted::Refused(error) => self.refuse(key, error),
                Wanted::Waits(why) => {
                    self.keep_held(true);
                    let error = self.with_hint(&why);
                    self.refuse(key, error);
                }
                Wanted::Held => {
                    self.hold(key.clone());
                    self.rest(&key);
                }
                Wanted::Nothing => {
                    self.host_status.gone(W::RULES.guest, &key.to_string());
                    self.controller.forget(&key);
                    self.rest(&key);
                }
                Wanted::Forget => {
                    self.supervisor.release(&key.to_string());
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
        self.controller.done(key, Outcome::Success, self.now_ms());
    }

    /// The desired state can't be computed. Nothing changes until the input does.
    fn refuse(&mut self, key: W::Key, error: String) {
        // The entry was for another input.
        self.supervisor.release(&key.to_string());
        self.host_status.refused(W::RULES.guest, &key.to_string(), &error);
        self.rest(&key);
        if self.is_new(&key, &error) {
            self.world.publish_problem(&key, KeyProblem::Refused(&error));
            let came = JobResult::Refused { error: error.clone() };
            self.decided(&key).end(came, Effects::default());
            (self.report)(Event::Failed {
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
        result.is_none_or(|result| result.as_ref().err().map(String::as_str) != Some(error))
    }

    /// A turn of this key is about to begin. Records why.
    fn decided(&mut self, key: &W::Key) -> JobRecorder {
        let status = self.controller.status(key);
        let failures = status.map_or(0, |status| status.failures);
        let result = self.last_results.get(key);
        let start = self.pending.start.clone();
        let otherwise = || match status.and_then(|status| status.last) {
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
        JobRecorder::new(&instances.state_dir, instances.name, key.to_string(), why, failures)
    }

    pub(super) fn start(&mut self, key: W::Key, desired: W::Desired) {
        self.held.remove(&key);
        if let Err(error) = self.world.prepare(&key, &desired) {
            self.fail(&key, &error);
            return;
        }
        let instance = key.to_string();
        let slot = self.idle.pop(&instance).unwrap_or_else(|| {
            let active = Arc::clone(&self.shared.active);
            InstanceSlot::new(active, &instance, Backends::default())
        });
        let interrupt = Interrupt::new();
        self.host_status.began(W::RULES.guest, &instance);
        let fence = self.leadership.fence().of_this_epoch();
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
    fn fail(&mut self, key: &W::Key, error: &str) {
        let now_ms = self.now_ms();
        self.holdings().turn_ended(&key.to_string());
        let due_ms = self.controller.done(key, Outcome::Failure, now_ms);
        self.host_status.refused(W::RULES.guest, &key.to_string(), error);
        let failures = self.failures(key);
        self.failed(
            key,
            error.to_owned(),
            failures,
            due_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
        );
    }
}
