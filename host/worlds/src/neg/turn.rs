//! The turn of one key: finishes a call that a kill cut short, notifies the guest of ends of operations and of timers,
//! and compares its NEGs with the target.
//!
//! ```text
//! open (restore) -> finish what was interrupted -> ends -> timers -> error state -> sync -> read the state
//! ```

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trueup_base::text;
use trueup_capabilities::meter::Effects;
use trueup_capabilities::neg::{NegRef, shown};
use trueup_instance::with_causes;
use trueup_journal::Interrupted;
use trueup_work::keyed::turn::{self, Turn};
use trueup_work::lifecycle::failure::Failure;

use super::Inbox;
use super::operations::{NOT_FOUND, Noted, Started, State};
use crate::neg::adapter::{Desired, Key};
use crate::neg::guest::{Error, OnOperation, OnTimer, SetErrorState, Sync, SyncReport};

/// The maximum number of timers that one turn fires. The guest has three; one that schedules another in each call must
/// not occupy a worker for ever.
const TIMERS_PER_TURN_MAX: usize = 16;

const ON_OPERATION: &str = "syncer.on-operation";

/// What a turn leaves, found out and did.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// What came for the key, and the turn did not get to.
    pub(super) inbox: Inbox,
    /// When its last call began, in milliseconds since 1970, as far as is known.
    pub(super) last_at_ms: u64,
    /// Endpoints in operations that it started.
    pub(super) attaching: u64,
    pub(super) detaching: u64,
    /// Endpoints in operations of whose success it notified the guest.
    pub(super) attached: u64,
    pub(super) detached: u64,
    /// The failed operations since the last success, and whether the last end was a success.
    pub(super) operation_failures: u32,
    pub(super) operation_succeeded: bool,
    /// The last failure of an operation since a sync found nothing to do: the NEGs are not as they should be, whether
    /// or not the guest tries again.
    pub(super) operation_failure: Option<String>,
    /// It compared the NEGs with the target and met no error.
    pub(super) synced: bool,
    /// The guest refused its input, or met an error of the API. It retries by itself, by its timers.
    pub(super) error: Option<String>,
    /// What the guest's state says now. `None` if the turn did not read it, or the guest uses another format.
    pub(super) state: Option<State>,
}

impl Out {
    /// Why the key has failed, though its turn ended well: the guest itself tries again, or has given up.
    pub(super) fn guest_retries(&self) -> Option<&String> {
        self.error.as_ref().or(self.operation_failure.as_ref())
    }

    /// The same, for people. If a timer of the guest is set, its time is shown as that of the next try.
    fn failure(&self, has_timer: bool) -> Option<String> {
        let is_tried_again = self.attaching + self.detaching > 0 && !has_timer;
        let tried_again = if is_tried_again { "; it is tried again now" } else { "" };
        Some(format!("{}{tried_again}", self.guest_retries()?))
    }
}

/// A running turn.
pub(super) struct NegTurn {
    pub(super) key: Key,
    pub(super) turn: Turn,
    pub(super) work: Desired,
    /// Finishes a call that a kill cut short only if it began at this time or later. In milliseconds since 1970.
    pub(super) finishes_from_ms: u64,
    /// The API of its instance.
    pub(super) noted: Arc<Noted>,
    pub(super) out: Out,
}

impl NegTurn {
    /// Runs the turn to its end.
    pub(super) async fn run(mut self) -> turn::Done<Key, Out> {
        let mut end = self.all().await;
        let mut turn = self.turn;
        let mut out = self.out;
        if let (Ok(false), Some(error)) = (&end, out.failure(turn.slot.timer_ms().is_some())) {
            end = Err(Failure::from(error));
        }
        // Endpoints come and go all the time: what counts is what was asked for, and never as going round in circles.
        turn.effects = Effects {
            created: out.attaching,
            destroyed: out.detaching,
        };
        turn.changes.clear();
        out.last_at_ms = turn.last_at_ms;
        turn.end(self.key, end, out)
    }

    /// `true` if the key is no longer desired and nothing of it is left.
    async fn all(&mut self) -> Result<bool, Failure> {
        let mut wanted = self.ready().await?;
        wanted |= self.deliver_ends().await?;
        wanted |= self.fire_timers().await?;
        if let Some(in_error_state) = self.out.inbox.error_state {
            let args = SetErrorState { in_error_state };
            let () = self.call("syncer.set-error-state", &args).await?;
            self.out.inbox.error_state = None;
        }
        let mut is_empty = false;
        if wanted || self.out.inbox.sync {
            let report = self.sync().await?;
            self.out.inbox.sync = false;
            is_empty = report.is_some_and(|report| report.attaching + report.detaching + report.in_flight == 0);
            self.out.operation_failure.take_if(|_| is_empty);
        }
        self.out.state = self.state().await?;
        let in_flight = !self.noted.in_flight.lock().is_empty();
        let waits = self.turn.slot.timer_ms().is_some();
        Ok(self.work.is_gone && is_empty && !in_flight && !waits)
    }

    /// Gets the instance. If it was just opened, finishes the call that a kill cut short, and looks up operations in
    /// flight that the backend does not know. `true` if it was just opened and needs a sync.
    async fn ready(&mut self) -> Result<bool, Failure> {
        self.turn.go_on()?;
        if !self.turn.slot.is_live() {
            self.noted.in_flight.lock().clear();
        }
        let Some(interrupted) = self.turn.ready(Some(&self.work.settings)).await? else {
            return Ok(false);
        };
        match interrupted {
            Some(interrupted) if interrupted.at_ms >= self.finishes_from_ms => self.finish(interrupted).await?,
            Some(Interrupted { call, .. }) => {
                // The remaining changes of the call may be wrong by now. The turn syncs its NEGs in any case.
                let instance = self.turn.slot.key();
                tracing::info!(
                    instance,
                    "`{call}`, inside which the host was stopped, is not finished: others have acted since"
                );
                let recording = self.turn.slot.instances().recording(instance);
                // If that can't be written, the next start finds the call again.
                Interrupted::forget(&recording).map_err(with_causes)?;
            }
            None => {}
        }
        let known = self.state().await?.unwrap_or_default();
        for known in known.operations {
            let operation = known.operation;
            self.noted.in_flight.lock().entry(operation).or_insert(known.started());
            if !self.noted.operations.is_pending(&self.noted.instance, operation) {
                let end = self.out.inbox.ends.entry(operation);
                end.or_insert_with(|| Some(NOT_FOUND.to_owned()));
            }
        }
        Ok(true)
    }

    /// Finishes the call inside which the recording ended. Its answer matters only if it reported the end of an
    /// operation: an instance that was just opened gets a sync in any case.
    async fn finish(&mut self, interrupted: Interrupted) -> Result<(), Failure> {
        let (call, args) = (interrupted.call.clone(), interrupted.args.clone());
        self.turn.finish(interrupted).await?;
        if let Ok(OnOperation { operation, failure }) = serde_json::from_str(args.get())
            && call == ON_OPERATION
        {
            self.acknowledged(operation, failure.as_deref()).await;
        }
        Ok(())
    }

    async fn deliver_ends(&mut self) -> Result<bool, Failure> {
        let mut wanted = false;
        while let Some((&operation, failure)) = self.out.inbox.ends.first_key_value() {
            let failure = failure.clone();
            let args = OnOperation { operation, failure };
            wanted |= self.call::<bool>(ON_OPERATION, &args).await?;
            self.acknowledged(operation, args.failure.as_deref()).await;
        }
        Ok(wanted)
    }

    /// The guest knows of the end of an operation, and its recording says so.
    async fn acknowledged(&mut self, operation: u64, failure: Option<&str>) {
        let (noted, out) = (&*self.noted, &mut self.out);
        out.inbox.ends.remove(&operation);
        noted.operations.acknowledged(&noted.instance, operation).await;
        let started = noted.in_flight.lock().remove(&operation);
        if let Some(failure) = failure {
            tracing::warn!(instance = noted.instance, operation, "an operation failed: {failure}");
            out.operation_failures += 1;
            out.operation_failure = Some(format!("operation {operation} failed: {failure}"));
            out.operation_succeeded = false;
            return;
        }
        out.operation_succeeded = true;
        out.operation_failures = 0;
        if let Some(Started { attaches, endpoints }) = started {
            let count = if attaches { &mut out.attached } else { &mut out.detached };
            *count += endpoints as u64;
        }
    }

    async fn fire_timers(&mut self) -> Result<bool, Failure> {
        let mut wanted = false;
        for _ in 0..TIMERS_PER_TURN_MAX {
            self.turn.go_on()?;
            let Some(host) = self.turn.slot.host_mut() else { break };
            let now_ms = host.backends.clock.steady_ms();
            let Some((_, timer)) = host.timers.take_due(now_ms) else {
                break;
            };
            wanted |= self.call::<bool>("timer-events.on-timer", &OnTimer { timer }).await?;
        }
        Ok(wanted)
    }

    /// `None` if it met an error, which the guest itself retries.
    async fn sync(&mut self) -> Result<Option<SyncReport>, Failure> {
        let target = std::mem::take(&mut self.work.target);
        *self.noted.unknown.lock() = None;
        let answer: Result<SyncReport, Error> = self.call("syncer.sync", &Sync { target }).await?;
        match answer {
            Ok(report) => {
                self.out.attaching += u64::from(report.attaching);
                self.out.detaching += u64::from(report.detaching);
                self.out.synced = true;
                Ok(Some(report))
            }
            Err(error) => {
                let unknown = self.noted.unknown.lock();
                self.out.error = Some(describe(&error, unknown.as_ref().map(|(neg, _)| neg)));
                Ok(None)
            }
        }
    }

    async fn state(&mut self) -> Result<Option<State>, Failure> {
        let snapshot = self.turn.slot.snapshot().await?;
        Ok(snapshot.as_deref().and_then(State::read))
    }

    async fn call<R: DeserializeOwned>(&mut self, call: &str, args: &impl Serialize) -> Result<R, Failure> {
        self.turn.go_on()?;
        self.turn.call(call, args, |answer, _| Ok(answer)).await
    }
}

/// An error of the guest, in an operator's words. `unknown`: the NEG that the backend did not know. Cut to size, since
/// a guest may fill a whole answer.
pub(super) fn describe(error: &Error, unknown: Option<&NegRef>) -> String {
    match error {
        Error::InvalidInput(text) => text::error(format!("invalid input: {text}")),
        Error::Api(error) => shown::in_words(error, unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_one_next_try() {
        let out = Out {
            attaching: 2,
            operation_failure: Some("operation 7 failed: gone".to_owned()),
            ..Out::default()
        };
        let says = |has_timer| out.failure(has_timer).unwrap();
        assert_eq!(says(true), "operation 7 failed: gone", "the event adds the time");
        assert_eq!(says(false), "operation 7 failed: gone; it is tried again now");
    }
}
