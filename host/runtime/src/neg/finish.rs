//! Handles a finished job, and the instance that it leaves.

use tokio::task::JoinError;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_controller::Outcome;

use super::inbox::Inbox;
use super::job::{self, Came, Done};
use super::{Negs, Running};
use crate::board::{self, Finished, NegAt, OperationAt};
use crate::event::Event;
use crate::guests::neg::NAME;
use crate::guests::neg::adapter::Key;
use crate::lifecycle::end::End;
use crate::lifecycle::quarantine;
use crate::lifecycle::troubles::{FAILURES_MAX_ONCE, TooMuch};

impl<T: FnMut(Event)> Negs<'_, T> {
    pub(super) fn finish(&mut self, done: Result<(tokio::task::Id, Done), JoinError>) {
        let Some(done) = self.done(done) else { return };
        let Done {
            key,
            live,
            end,
            inbox,
            last_at_ms,
            came,
        } = done;
        let running = self.running.remove(&key);
        self.attached += came.attached;
        self.detached += came.detached;
        let timer_ms = live.as_ref().and_then(job::Live::timer_ms);
        let is_open = live.is_some();
        if let Some(live) = live {
            self.idle.rest(key.clone(), live);
        }
        let entry = self.entry(&key);
        entry.inbox.put_back(inbox);
        entry.last_at_ms = last_at_ms;
        if let Some(state) = &came.state {
            entry.in_flight = state.in_flight.len();
        }
        self.set_alarm(&key, timer_ms);
        // A failure says nothing about the key if the host had no right to act.
        let is_past = running.as_ref().is_some_and(|running| !running.fence.may_act());
        let end = match end {
            End::Failed { .. } if is_past || !self.acts.may() => End::Interrupted,
            end => end,
        };
        self.show(&key, &came);
        let is_other_version = running.as_ref().is_some_and(|running| running.version != self.versions);
        if let Some((input, too_much)) = running.and_then(|running| self.trouble(&key, &running, &end)) {
            self.controller.done(&key, Outcome::Success, self.now_ms());
            self.setup
                .board
                .finished(NAME, &key.to_string(), on_the_board(&end, &came, 0, None));
            self.set_aside(key, input, too_much);
            return;
        }
        let failures = self.count(&key, &end, &came);
        // The guest itself retries an error that it met and reported, by its timers: the next job comes with those.
        let outcome = match &end {
            End::Failed { .. } if is_open && came.error.is_some() => Outcome::Success,
            end => end.outcome(),
        };
        let now_ms = self.now_ms();
        let due_ms = self.controller.done(&key, outcome, now_ms);
        let by_queue = due_ms.map(|due_ms| due_ms.saturating_sub(now_ms));
        let by_timer = timer_ms.map(|timer_ms| timer_ms.saturating_sub(SystemClock.steady_ms()));
        let again_in_ms = by_queue.filter(|_| outcome != Outcome::Success).or(by_timer);
        let finished = on_the_board(&end, &came, failures, again_in_ms);
        self.setup.board.finished(NAME, &key.to_string(), finished);
        match end {
            End::Interrupted => {
                if let Some(cause) = self.became_active.clone().filter(|_| is_other_version) {
                    self.pending.because(&key, SystemClock.now_ms(), cause);
                }
            }
            End::True { gone } => self.is_true(&key, gone, &came),
            End::Failed { error, .. } | End::Fault { error } => {
                let given_up = self.once && failures >= FAILURES_MAX_ONCE;
                if given_up {
                    self.give_up(&key);
                }
                (self.tell)(Event::Failed {
                    key: key.to_string(),
                    error: error.clone(),
                    again_in_ms: again_in_ms.filter(|_| !given_up),
                });
                self.entry(&key).standing = Some(Err(error));
            }
        }
    }

    /// The result of a job. A job that ended without one counts as failed. `None` if the task has no key.
    fn done(&mut self, done: Result<(tokio::task::Id, Done), JoinError>) -> Option<Done> {
        let error = match done {
            Ok((id, done)) => {
                self.tasks.remove(&id);
                return Some(done);
            }
            Err(error) => error,
        };
        // A defect of the host, or an aborted job. Its key fails; the others go on. The backend sends the ends of its
        // operations again; the next job syncs its NEGs in any case.
        let key = self.tasks.remove(&error.id())?;
        let last_at_ms = self.entry(&key).last_at_ms;
        Some(Done {
            key,
            live: None,
            end: End::Failed {
                error: format!("its job ended without a result: {error}"),
                retry_after_ms: None,
            },
            inbox: Inbox {
                sync: true,
                ..Inbox::default()
            },
            last_at_ms,
            came: Came::default(),
        })
    }

    /// How often in a row the key has failed in any way, including this time.
    fn count(&mut self, key: &Key, end: &End, came: &Came) -> u32 {
        let queued = self.controller.status(key).map_or(0, |status| status.failures);
        let entry = self.entry(key);
        if came.operation_succeeded {
            entry.operation_failures = 0;
        }
        entry.operation_failures = entry.operation_failures.saturating_add(came.operation_failures);
        if came.synced {
            entry.sync_failures = 0;
        }
        let has_failed = match end {
            End::Failed { .. } if came.error.is_some() => {
                entry.sync_failures = entry.sync_failures.saturating_add(1);
                0
            }
            End::Failed { .. } | End::Fault { .. } => queued.saturating_add(1),
            End::True { .. } | End::Interrupted => 0,
        };
        has_failed.max(entry.sync_failures).max(entry.operation_failures)
    }

    fn is_true(&mut self, key: &Key, gone: bool, came: &Came) {
        let operation_failures = self.entry(key).operation_failures;
        if self.once && operation_failures >= FAILURES_MAX_ONCE {
            let error = format!("{operation_failures} operations in a row failed");
            self.give_up(key);
            (self.tell)(Event::Failed {
                key: key.to_string(),
                error: error.clone(),
                again_in_ms: None,
            });
            self.entry(key).standing = Some(Err(error));
            return;
        }
        if came.synced || gone {
            self.note_held(key, gone);
            (self.tell)(Event::Synced {
                key: key.to_string(),
                gone,
                attaching: came.attaching,
                detaching: came.detaching,
            });
        }
        let entry = self.entry(key);
        if came.synced || entry.standing.is_none() {
            entry.standing = Some(Ok(()));
        }
        if gone {
            self.forget(key);
        }
    }

    /// The key failed in the host, before any job.
    pub(super) fn fail(&mut self, key: &Key, error: &str) {
        let now_ms = self.now_ms();
        let due_ms = self.controller.done(key, Outcome::Failure, now_ms);
        self.setup.board.refused(NAME, &key.to_string(), error);
        (self.tell)(Event::Failed {
            key: key.to_string(),
            error: error.to_owned(),
            again_in_ms: due_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
        });
        let failures = self.controller.status(key).map_or(0, |status| status.failures);
        if self.once && failures >= FAILURES_MAX_ONCE {
            self.give_up(key);
        }
        self.entry(key).standing = Some(Err(error.to_owned()));
    }

    /// With `--once`: gives up the key. Operations in flight end by themselves; the next process gets their ends.
    fn give_up(&mut self, key: &Key) {
        self.controller.forget(key);
        self.set_alarm(key, None);
        self.entry(key).given_up = true;
    }

    /// Whether to set the key aside after this job. Returns the digest of its input, and why. Ignores jobs of a
    /// version that is no longer active.
    fn trouble(&mut self, key: &Key, running: &Running, end: &End) -> Option<(String, TooMuch)> {
        if running.version != self.versions {
            return None;
        }
        let instances = job::of_key(&self.shared.active.instances(), &running.wanted.settings);
        let input = quarantine::input(&instances, &running.wanted);
        let too_much = self.troubles.after(key, input.clone(), end, &[])?;
        Some((input, too_much))
    }

    fn show(&self, key: &Key, came: &Came) {
        let Some(state) = &came.state else { return };
        let instance = key.to_string();
        let in_flight = state.in_flight.iter().map(|(operation, started)| OperationAt {
            operation: *operation,
            attaches: started.attaches,
            endpoints: started.endpoints,
            at: state.in_flight_at.get(operation).cloned().unwrap_or_default(),
        });
        let at = NegAt {
            in_flight: in_flight.collect(),
            attached: came.attached,
            detached: came.detached,
            migration: state.migration(&self.setup.metrics, &instance),
            in_error_state: state.in_error_state,
        };
        self.setup.board.neg(&instance, at);
    }

    /// Removes the state of a key of which nothing is left, unless it came back meanwhile.
    pub(super) fn forget(&mut self, key: &Key) {
        self.idle.let_go(key);
        if self.targets.wish(key).is_some() {
            return;
        }
        let instance = key.to_string();
        self.set_alarm(key, None);
        if let Some((_, until_ms)) = self.entry(key).gathers.take() {
            self.gathering.remove(&(until_ms, key.clone()));
        }
        self.controller.forget(key);
        self.pending.forget(key);
        if self.once {
            self.entry(key).inbox = Inbox::default();
            self.entry(key).in_flight = 0;
        } else {
            self.entries.remove(key);
        }
        self.troubles.forget(key);
        self.setup.metrics.forget(&instance);
        self.setup.board.forget_neg(&instance);
        self.setup.board.gone(NAME, &instance);
        if let Err(error) = self.known.forget(key) {
            tracing::warn!(%key, "it is looked for once more at the next start: {error}");
        }
        if let Err(error) = self.shared.active.instances().forget(&instance) {
            tracing::warn!(%key, "its state is not removed: {error}");
        }
    }

    pub(super) fn sync_idle(&mut self) {
        self.idle.sync_if_due();
    }
}

/// The result of a job in the format of the board.
fn on_the_board(end: &End, came: &Came, failures: u32, again_in_ms: Option<u64>) -> Finished {
    let (outcome, error) = match end {
        End::True { gone: false } => (board::Outcome::True, None),
        End::True { gone: true } => (board::Outcome::Gone, None),
        End::Interrupted => (board::Outcome::Interrupted, None),
        End::Failed { error, .. } => (board::Outcome::Failed, Some(error.clone())),
        End::Fault { error } => (board::Outcome::Fault, Some(error.clone())),
    };
    Finished {
        outcome,
        error,
        failures,
        again_in_ms,
        created: came.attaching,
        destroyed: came.detaching,
        in_service: Vec::new(),
    }
}
