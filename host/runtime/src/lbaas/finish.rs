//! Handles a finished job, and the instance that it leaves.

use tokio::task::JoinError;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::meter::{Change, Effects};
use trueup_controller::Outcome;

use super::job::{Done, Live};
use super::room::GAVE_WAY_PAUSE_MS;
use super::{Running, Services};
use crate::board::{self, Finished};
use crate::event::Event;
use crate::guests::lbaas::adapter::Key;
use crate::guests::lbaas::{self, AddressPorts};
use crate::lifecycle::end::End;
use crate::lifecycle::quarantine;
use crate::lifecycle::troubles::{FAILURES_MAX_ONCE, TooMuch};
use crate::work::interrupt::Waits;
use crate::work::publish::News;

/// The maximum number of idle instances. Above it, the host drops the one that is idle for the longest, and rebuilds
/// it from its recording when its key changes again.
const IDLE_INSTANCES_MAX: usize = 256;

/// The error of a call that gave way to another key and did not sleep.
const COMPUTED_FOR_LONG: &str = "the guest computed for long while many other keys waited, and gave way to them";

impl<T: FnMut(Event)> Services<'_, T> {
    pub(super) fn finish(&mut self, done: Result<(tokio::task::Id, Done), JoinError>) {
        let done = match done {
            Ok((id, done)) => {
                self.tasks.remove(&id);
                done
            }
            Err(error) => {
                // A defect of the host, or an aborted job. Its key fails; the others go on.
                let Some(key) = self.tasks.remove(&error.id()) else {
                    return;
                };
                let end = End::Failed {
                    error: format!("its job ended without a result: {error}"),
                    retry_after_ms: None,
                };
                Done {
                    key,
                    live: None,
                    end,
                    effects: Effects::default(),
                    changes: Vec::new(),
                    in_service: Vec::new(),
                }
            }
        };
        let Done {
            key,
            live,
            end,
            effects,
            changes,
            in_service,
        } = done;
        let running = self.running.remove(&key);
        let is_resync = running.as_ref().is_some_and(|running| running.is_resync);
        let is_other_version = running.as_ref().is_some_and(|running| running.version != self.versions);
        self.effects.created += effects.created;
        self.effects.destroyed += effects.destroyed;
        if let Some(live) = live {
            self.rest(key.clone(), live);
        }
        let now_ms = self.now_ms();
        // A failure says nothing about the key if the host had no right to act, or if the job began in an earlier
        // epoch.
        let is_past = running.as_ref().is_some_and(|running| !running.fence.may_act());
        let end = match end {
            End::Failed { .. } if is_past || !self.acts.may() => End::Interrupted,
            end => end,
        };
        let gave_way = running.as_ref().and_then(|running| running.gives_way);
        let end = match (end, gave_way) {
            (End::Interrupted, Some(Waits::ForTurn)) => End::Fault {
                error: COMPUTED_FOR_LONG.to_owned(),
            },
            (end, _) => end,
        };
        let end = self.waits(&key, end);
        let finished = on_the_board(&end, effects, &in_service);
        if let Some((input, too_much)) = running.and_then(|running| self.trouble(&key, &running, &end, &changes)) {
            self.controller.done(&key, Outcome::Success, now_ms);
            self.setup.board.finished(lbaas::NAME, &key.to_string(), finished);
            self.set_aside(key, input, too_much);
            return;
        }
        let outcome = match &end {
            End::Interrupted if gave_way.is_some() => Outcome::GaveWay(GAVE_WAY_PAUSE_MS),
            end => end.outcome(),
        };
        let due_ms = self.controller.done(&key, outcome, now_ms);
        let failures = self.controller.status(&key).map_or(0, |status| status.failures);
        let finished = Finished {
            failures,
            again_in_ms: due_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
            ..finished
        };
        self.setup.board.finished(lbaas::NAME, &key.to_string(), finished);
        match end {
            End::Interrupted if is_other_version => {
                if let Some(cause) = self.became_active.clone() {
                    self.pending.because(&key, SystemClock.now_ms(), cause);
                }
            }
            End::Interrupted => {}
            End::True { gone } => {
                let in_service = in_service
                    .into_iter()
                    .map(|AddressPorts { address, ports }| (address, ports))
                    .collect::<Vec<_>>();
                let Effects { created, destroyed, .. } = effects;
                if is_resync && created + destroyed > 0 {
                    tracing::warn!(
                        %key,
                        created,
                        destroyed,
                        "its objects were changed by others since they were as they should be, and are so again: look for another host \
                         with the same `cluster`, or for someone who changes them by hand"
                    );
                }
                let news = match gone {
                    true => News::Deleted { destroyed },
                    false => News::Ensured {
                        created,
                        destroyed,
                        in_service: &in_service,
                    },
                };
                self.shared.publish.say(&key, news);
                (self.tell)(Event::True {
                    key: key.to_string(),
                    gone,
                    created: effects.created,
                    destroyed: effects.destroyed,
                    in_service,
                });
                self.standing.insert(key.clone(), Ok(()));
                self.setup.quotas.holdings.done(&key.to_string());
                if gone {
                    self.forget(&key);
                }
            }
            End::Failed { error, .. } | End::Fault { error } => {
                let waits = self.setup.quotas.holdings.refusal(&key.to_string()).is_some();
                let given_up = self.once && (failures >= FAILURES_MAX_ONCE || waits && self.held_objects.is_known());
                if given_up {
                    self.controller.forget(&key);
                }
                self.shared.publish.say(&key, News::Failed(&error));
                let again_in_ms = due_ms.filter(|_| !given_up).map(|due_ms| due_ms.saturating_sub(now_ms));
                (self.tell)(Event::Failed {
                    key: key.to_string(),
                    error: error.clone(),
                    again_in_ms,
                });
                self.standing.insert(key, Err(error));
            }
        }
    }

    /// Whether to set the key aside after this job. Returns the digest of its input, and why. Ignores jobs of a
    /// version that is no longer active.
    fn trouble(&mut self, key: &Key, running: &Running, end: &End, changes: &[Change]) -> Option<(String, TooMuch)> {
        if running.version != self.versions {
            return None;
        }
        let input = quarantine::input(&self.shared.active.instances(), &running.desired);
        let too_much = self.troubles.after(key, input.clone(), end, changes)?;
        Some((input, too_much))
    }

    /// Once every key is in its desired state, the intents on disk cover all that a kill may leave without its tags.
    pub(super) fn note_all_listed(&self) {
        let anexia = self.setup.anexia.as_ref().filter(|anexia| anexia.looks_by_name());
        let Some(anexia) = anexia.filter(|_| self.running.is_empty() && self.wishes.is_complete()) else {
            return;
        };
        let is_true = |key: &Key| matches!(self.standing.get(key), Some(Ok(())));
        if self.wishes.keys().iter().all(is_true) && self.gone().is_empty() {
            anexia.all_listed();
        }
    }

    /// Removes the state of a key of which nothing is left, unless it came back meanwhile.
    pub(super) fn forget(&mut self, key: &Key) {
        self.let_go(key);
        if self.wishes.wish(key).is_some() {
            return;
        }
        self.controller.forget(key);
        self.pending.forget(key);
        if !self.once {
            self.standing.remove(key);
        }
        self.troubles.forget(key);
        self.setup.metrics.forget(&key.to_string());
        if let Err(error) = self.shared.active.instances().forget(&key.to_string()) {
            tracing::warn!(%key, "its state is not removed: {error}");
        }
    }

    fn rest(&mut self, key: Key, live: Live) {
        self.rests += 1;
        self.idle_order.insert(self.rests, key.clone());
        self.idle.insert(key, (self.rests, live));
        if self.idle.len() > IDLE_INSTANCES_MAX
            && let Some((_, longest)) = self.idle_order.pop_first()
        {
            self.let_go(&longest);
        }
    }

    pub(super) fn let_go(&mut self, key: &Key) {
        if let Some((rest, mut live)) = self.idle.remove(key) {
            self.idle_order.remove(&rest);
            live.sync();
        }
    }

    pub(super) fn sync_idle(&mut self) {
        for (key, (_, live)) in &mut self.idle {
            if let Err(error) = live.sync_if_due() {
                tracing::warn!(instance = %key, "{error}");
            }
        }
        self.keep_held(false);
    }
}

/// The result of a job in the format of the board.
fn on_the_board(end: &End, effects: Effects, in_service: &[AddressPorts]) -> Finished {
    let (outcome, error) = match end {
        End::True { gone: false } => (board::Outcome::True, None),
        End::True { gone: true } => (board::Outcome::Gone, None),
        End::Interrupted => (board::Outcome::Interrupted, None),
        End::Failed { error, .. } => (board::Outcome::Failed, Some(error.clone())),
        End::Fault { error } => (board::Outcome::Fault, Some(error.clone())),
    };
    let place = |address: &str, port: u16| {
        if address.contains(':') {
            format!("[{address}]:{port}")
        } else {
            format!("{address}:{port}")
        }
    };
    let serving = in_service
        .iter()
        .flat_map(|serving| serving.ports.iter().map(move |port| place(&serving.address, *port)));
    Finished {
        outcome,
        error,
        failures: 0,
        again_in_ms: None,
        created: effects.created,
        destroyed: effects.destroyed,
        in_service: serving.collect(),
    }
}
