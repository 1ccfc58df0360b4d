//! The job of one key: finishes a call that a kill cut short, notifies the guest of ends of operations and of timers,
//! and compares its NEGs with the target.
//!
//! ```text
//! open (restore) -> finish what was interrupted -> ends -> timers -> error state -> sync -> read the state
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tracing::Instrument as _;
use trueup_base::fence::Fence;
use trueup_capabilities::Backends;
use trueup_capabilities::meter::Effects;
use trueup_capabilities::neg::{self, EndpointGroup};
use trueup_journal::{Interrupted, Journal, JournalError};

use super::inbox::Inbox;
use super::operations::{self, InFlight, NOT_FOUND, Noted, Operations, Started};
use super::progress::State;
use crate::decisions::{self, Decided};
use crate::guests::dispatch::{self, Answer, InvokeError, Unreadable};
use crate::guests::neg::adapter::Key;
use crate::guests::neg::shown::describe;
use crate::guests::neg::{Error, OnOperation, OnTimer, SetErrorState, Sync, SyncReport};
use crate::instance::Instance;
use crate::instances::{Instances, OpenError, Reopened};
use crate::lifecycle::active::Active;
use crate::lifecycle::end::End;
use crate::work::interrupt::{Interrupt, InterruptibleClock, Sleepers};
use crate::work::turns::{Paced, Turns};

/// The maximum number of timers that one job fires. The guest has three; one that schedules another in each call must
/// not occupy a worker for ever.
const TIMERS_PER_JOB_MAX: usize = 16;

/// An instance, and what it was opened with.
pub(super) struct Live {
    pub(super) instance: Instance,
    /// The version that was active then.
    base: Arc<Instances>,
    /// The same with the settings of this key.
    version: Arc<Instances>,
    /// Operations that it has started and of whose end the guest does not know yet.
    in_flight: InFlight,
}

impl Live {
    /// When its first timer is due, by `Clock::steady_ms`. `None` if it has no timer.
    pub(super) fn timer_ms(&self) -> Option<u64> {
        self.instance.host().timers.next_due_ms()
    }

    /// Syncs the recording to disk if the configuration says so and it is due.
    pub(super) fn sync_if_due(&mut self) -> Result<(), JournalError> {
        let journal = self.instance.host_mut().tape.journal_mut();
        journal.map_or(Ok(()), |journal| journal.tick(Instant::now()))
    }

    /// Syncs the whole recording to disk: nothing will sync it later.
    pub(super) fn sync(&mut self) {
        if let Some(Err(error)) = self.instance.host_mut().tape.journal_mut().map(Journal::sync_now) {
            tracing::warn!("{error}");
        }
    }
}

/// A job for one key.
pub(super) struct Job {
    /// Why it runs, and the record of its decisions.
    pub(super) decided: Decided,
    pub(super) key: Key,
    /// The settings that the adapter gives the guest, beside the configuration.
    pub(super) settings: Map<String, Value>,
    pub(super) target: Vec<EndpointGroup>,
    /// Whether the key is no longer desired.
    pub(super) is_gone: bool,
    pub(super) inbox: Inbox,
    /// The instance of the key's last job, if it is still there.
    pub(super) live: Option<Live>,
    /// When its last call began, in milliseconds since 1970, as far as is known.
    pub(super) last_at_ms: u64,
    /// Finishes a call that a kill cut short only if it began at this time or later. In milliseconds since 1970.
    pub(super) finishes_from_ms: u64,
    /// The fence of the epoch in which it begins.
    pub(super) fence: Fence,
    /// Set to end the job after the current call.
    pub(super) ending: Arc<AtomicBool>,
}

/// What all jobs share.
pub(super) struct Shared {
    pub(super) active: Arc<Active>,
    pub(super) operations: Arc<dyn Operations>,
    pub(super) sleepers: Arc<Sleepers>,
    pub(super) turns: Arc<Turns>,
}

/// The result of a job.
pub(super) struct Done {
    pub(super) key: Key,
    pub(super) live: Option<Live>,
    pub(super) end: End,
    /// What the job did not get to.
    pub(super) inbox: Inbox,
    pub(super) last_at_ms: u64,
    pub(super) came: Came,
}

/// What a job found out and did.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// Endpoints in operations that it started.
    pub(super) attaching: u64,
    pub(super) detaching: u64,
    /// Endpoints in operations of whose success it notified the guest.
    pub(super) attached: u64,
    pub(super) detached: u64,
    /// The failed operations since the last success, and whether the last end was a success.
    pub(super) operation_failures: u32,
    pub(super) operation_succeeded: bool,
    /// It compared the NEGs with the target and met no error.
    pub(super) synced: bool,
    /// The guest refused its input, or met an error of the API. It retries by itself, by its timers.
    pub(super) error: Option<String>,
    /// What the guest's state says now. `None` if the job did not read it, or the guest uses another format.
    pub(super) state: Option<State>,
}

/// Why a job stopped.
enum Trouble {
    Interrupted,
    Failed(String),
    Fault(String),
}

impl From<InvokeError> for Trouble {
    fn from(error: InvokeError) -> Self {
        if error.is_fault() {
            Self::Fault(with_causes(error))
        } else {
            Self::Failed(with_causes(error))
        }
    }
}

impl From<Unreadable> for Trouble {
    fn from(error: Unreadable) -> Self {
        Self::Fault(with_causes(error))
    }
}

impl Trouble {
    fn said(&self) -> &str {
        match self {
            Self::Interrupted => "the host stops",
            Self::Failed(error) | Self::Fault(error) => error,
        }
    }
}

/// A running job.
struct Work<'a> {
    shared: &'a Shared,
    key: Key,
    instance: String,
    decided: Decided,
    backends: Backends,
    fence: Fence,
    ending: Arc<AtomicBool>,
    settings: Map<String, Value>,
    live: Option<Live>,
    last_at_ms: u64,
    finishes_from_ms: u64,
    inbox: Inbox,
    came: Came,
}

/// Runs the job to its end.
pub(super) async fn run(shared: Arc<Shared>, job: Job, backends: Backends) -> Done {
    let Job {
        decided,
        key,
        settings,
        target,
        is_gone,
        inbox,
        live,
        last_at_ms,
        finishes_from_ms,
        fence,
        ending,
    } = job;
    let mut work = Work {
        shared: &shared,
        instance: key.to_string(),
        key,
        decided,
        backends,
        fence,
        ending,
        settings,
        live,
        last_at_ms,
        finishes_from_ms,
        inbox,
        came: Came::default(),
    };
    let end = match work.all(target, is_gone).await {
        Ok(gone) => match work.came.error.clone() {
            None => End::True { gone },
            Some(error) => End::Failed {
                error,
                retry_after_ms: None,
            },
        },
        Err(Trouble::Interrupted) => End::Interrupted,
        Err(Trouble::Failed(error)) => End::Failed {
            error,
            retry_after_ms: None,
        },
        Err(Trouble::Fault(error)) => End::Fault { error },
    };
    let effects = Effects {
        created: work.came.attaching,
        destroyed: work.came.detaching,
    };
    work.decided.end(decisions::Came::from(&end), effects, &[]);
    Done {
        key: work.key,
        live: work.live,
        end,
        inbox: work.inbox,
        last_at_ms: work.last_at_ms,
        came: work.came,
    }
}

impl Work<'_> {
    /// `true` if the key is no longer desired and nothing of it is left.
    async fn all(&mut self, target: Vec<EndpointGroup>, is_gone: bool) -> Result<bool, Trouble> {
        let mut wanted = self.ready().await?;
        wanted |= self.tell_ends().await?;
        wanted |= self.tell_timers().await?;
        if let Some(in_error_state) = self.inbox.error_state {
            let () = self
                .call("syncer.set-error-state", &SetErrorState { in_error_state })
                .await?;
            self.inbox.error_state = None;
        }
        let mut is_empty = false;
        if wanted || self.inbox.sync {
            let report = self.sync(target).await?;
            self.inbox.sync = false;
            is_empty = report.is_some_and(|report| report.attaching + report.detaching + report.in_flight == 0);
        }
        let state = self.state().await?;
        let in_flight = self
            .live
            .as_ref()
            .is_some_and(|live| !operations::of(&live.in_flight).is_empty());
        let waits = self.live.as_ref().is_some_and(|live| live.timer_ms().is_some());
        self.came.state = state;
        Ok(is_gone && is_empty && !in_flight && !waits)
    }

    /// Gets the instance, with the active version and the current settings. `true` if it was just opened and needs a
    /// sync.
    async fn ready(&mut self) -> Result<bool, Trouble> {
        if self.ending.load(Ordering::SeqCst) {
            return Err(Trouble::Interrupted);
        }
        let base = self.shared.active.instances();
        let version = Arc::new(of_key(&base, &self.settings));
        match self.live.take() {
            Some(live) => self.brought_up_to_date(live, base, version).await.map(|()| false),
            None => self.open(base, version).await.map(|()| true),
        }
    }

    fn noted(&self, in_flight: &InFlight) -> Arc<dyn neg::Api> {
        Arc::new(Noted {
            api: self.shared.operations.api(&self.instance),
            fence: self.fence.clone(),
            in_flight: Arc::clone(in_flight),
        })
    }

    /// Moves the state if the version or the settings changed. If the new version refuses the state, the instance
    /// stays as it is, for when another version becomes active again.
    async fn brought_up_to_date(
        &mut self,
        mut live: Live,
        base: Arc<Instances>,
        version: Arc<Instances>,
    ) -> Result<(), Trouble> {
        // The API with which it was opened may be of a past epoch.
        live.instance.host_mut().backends.neg = Some(self.noted(&live.in_flight));
        if Arc::ptr_eq(&base, &live.base) && version.settings == live.version.settings {
            self.live = Some(live);
            return Ok(());
        }
        let Live {
            instance,
            base: old_base,
            version: old_version,
            in_flight,
        } = live;
        match version.take_over(&self.instance, instance, async || Ok(())).await {
            Ok(instance) => {
                self.live = Some(Live {
                    instance,
                    base,
                    version,
                    in_flight,
                });
                Ok(())
            }
            Err((left, error)) => {
                self.live = left.map(|instance| Live {
                    instance: *instance,
                    base: old_base,
                    version: old_version,
                    in_flight,
                });
                Err(Trouble::Fault(error))
            }
        }
    }

    /// Opens the instance, finishes the call that a kill cut short, and looks up operations in flight that the
    /// backend does not know.
    async fn open(&mut self, base: Arc<Instances>, version: Arc<Instances>) -> Result<(), Trouble> {
        let in_flight = InFlight::default();
        // This interrupt is never wanted, so no call is cut.
        let interrupt = Interrupt::new();
        let clock = InterruptibleClock {
            clock: Arc::clone(&self.backends.clock),
            interrupt: Arc::clone(&interrupt),
            sleepers: Arc::clone(&self.shared.sleepers),
        };
        let pace = Paced {
            turns: Arc::clone(&self.shared.turns),
            interrupt,
            sleepers: Arc::clone(&self.shared.sleepers),
        };
        let backends = Backends {
            neg: Some(self.noted(&in_flight)),
            clock: Arc::new(clock),
            pace: Some(Arc::new(pace)),
            ..self.backends.clone()
        };
        let opened = version.open_to_finish(&self.instance, backends).await;
        let Reopened {
            instance,
            interrupted,
            last_at_ms,
        } = opened.map_err(not_opened)?;
        self.last_at_ms = self.last_at_ms.max(last_at_ms);
        self.live = Some(Live {
            instance,
            base,
            version,
            in_flight: Arc::clone(&in_flight),
        });
        match interrupted {
            Some(interrupted) if interrupted.at_ms >= self.finishes_from_ms => self.finish(interrupted).await?,
            Some(interrupted) => {
                // Its remaining changes may be wrong by now. The job syncs its NEGs in any case.
                let call = &interrupted.call;
                tracing::info!(
                    instance = self.instance,
                    "`{call}`, inside which the host was stopped, is not finished: others have acted since"
                );
                self.shared
                    .active
                    .instances()
                    .give_up_interrupted(&self.instance)
                    .map_err(|error| Trouble::Failed(with_causes(error)))?;
            }
            None => {}
        }
        let known = self.state().await?.map(|state| state.in_flight).unwrap_or_default();
        for (operation, started) in known {
            operations::of(&in_flight).entry(operation).or_insert(started);
            if !self.shared.operations.is_pending(&self.instance, operation) {
                self.inbox
                    .ends
                    .entry(operation)
                    .or_insert_with(|| Some(NOT_FOUND.to_owned()));
            }
        }
        Ok(())
    }

    /// Finishes the call inside which the recording ended. Its answer matters only if it reported the end of an
    /// operation: an instance that was just opened gets a sync in any case.
    async fn finish(&mut self, interrupted: Interrupted) -> Result<(), Trouble> {
        let Some(mut live) = self.live.take() else {
            return Ok(());
        };
        self.last_at_ms = self.last_at_ms.max(interrupted.at_ms);
        let (call, args) = (interrupted.call.clone(), interrupted.args.clone());
        let span = self.decided.begin(live.instance.host(), &call, false);
        let counted = self.shared.active.calls.begin();
        let version = Arc::clone(&live.version);
        let finishing = version.finish(&self.instance, &mut live.instance, interrupted);
        let answer = finishing.instrument(span).await;
        counted.end(answer.is_ok());
        let answered = self.answered(live, answer).await;
        self.decided.end_call(answered.as_ref().err().map(Trouble::said));
        answered?;
        if let Ok(OnOperation { operation, failure }) = serde_json::from_str(args.get())
            && call == ON_OPERATION
        {
            self.told(operation, failure.as_deref()).await;
        }
        Ok(())
    }

    async fn tell_ends(&mut self) -> Result<bool, Trouble> {
        let mut wanted = false;
        while let Some((&operation, failure)) = self.inbox.ends.first_key_value() {
            let failure = failure.clone();
            let args = OnOperation { operation, failure };
            let answer: bool = self.call(ON_OPERATION, &args).await?;
            wanted |= answer;
            self.told(operation, args.failure.as_deref()).await;
        }
        Ok(wanted)
    }

    /// The guest knows of the end of an operation, and its recording says so.
    async fn told(&mut self, operation: u64, failure: Option<&str>) {
        self.inbox.ends.remove(&operation);
        self.shared.operations.told(&self.instance, operation).await;
        let started = self
            .live
            .as_ref()
            .and_then(|live| operations::of(&live.in_flight).remove(&operation));
        if let Some(failure) = failure {
            tracing::warn!(instance = self.instance, operation, "an operation failed: {failure}");
            self.came.operation_failures += 1;
            self.came.operation_succeeded = false;
            return;
        }
        self.came.operation_succeeded = true;
        self.came.operation_failures = 0;
        if let Some(Started { attaches, endpoints }) = started {
            let count = if attaches {
                &mut self.came.attached
            } else {
                &mut self.came.detached
            };
            *count += endpoints as u64;
        }
    }

    async fn tell_timers(&mut self) -> Result<bool, Trouble> {
        let mut wanted = false;
        for _ in 0..TIMERS_PER_JOB_MAX {
            if self.ending.load(Ordering::SeqCst) {
                return Err(Trouble::Interrupted);
            }
            let due = self.live.as_mut().and_then(|live| {
                let host = live.instance.host_mut();
                let now_ms = host.backends.clock.steady_ms();
                host.timers.take_due(now_ms)
            });
            let Some((_, timer)) = due else { break };
            let answer: bool = self.call("timer-events.on-timer", &OnTimer { timer }).await?;
            wanted |= answer;
        }
        Ok(wanted)
    }

    /// `None` if it met an error, which the guest itself retries.
    async fn sync(&mut self, target: Vec<EndpointGroup>) -> Result<Option<SyncReport>, Trouble> {
        let answer: Result<SyncReport, Error> = self.call("syncer.sync", &Sync { target }).await?;
        match answer {
            Ok(report) => {
                self.came.attaching += u64::from(report.attaching);
                self.came.detaching += u64::from(report.detaching);
                self.came.synced = true;
                Ok(Some(report))
            }
            Err(error) => {
                self.came.error = Some(describe(&error));
                Ok(None)
            }
        }
    }

    async fn state(&mut self) -> Result<Option<State>, Trouble> {
        let Some(live) = &mut self.live else { return Ok(None) };
        match live.instance.snapshot().await {
            Ok(snapshot) => Ok(State::read(&snapshot)),
            Err(error) => {
                self.live = None;
                Err(Trouble::Fault(with_causes(error)))
            }
        }
    }

    /// Calls the guest, and reads its answer. Records one decision. Its time is later than that of any call before.
    async fn call<R: DeserializeOwned>(&mut self, call: &str, args: &impl Serialize) -> Result<R, Trouble> {
        if self.ending.load(Ordering::SeqCst) {
            return Err(Trouble::Interrupted);
        }
        let unwritable = |error| Trouble::Failed(format!("arguments of `{call}`: {error}"));
        let args = to_raw_value(args).map_err(unwritable)?;
        let Some(mut live) = self.live.take() else {
            return Err(Trouble::Failed(format!("`{call}`: its instance is gone")));
        };
        let now_ms = live.instance.host().backends.clock.now_ms();
        self.last_at_ms = now_ms.max(self.last_at_ms.saturating_add(1));
        let span = self.decided.begin(live.instance.host(), call, false);
        let active = &self.shared.active;
        let calling = active.call_at(self.last_at_ms, &self.instance, &mut live.instance, call, &args);
        let answer = calling.instrument(span).await;
        let answered = self.answered(live, answer).await;
        let read = answered.and_then(|answer| Ok(dispatch::read(call, &answer)?));
        self.decided.end_call(read.as_ref().err().map(Trouble::said));
        read
    }

    /// The result of a call. If it succeeded, the instance goes on, in a new segment if the old one is long.
    async fn answered(&mut self, mut live: Live, answer: Answer) -> Result<Box<RawValue>, Trouble> {
        self.decided.asked(live.instance.host().meter.used.imports);
        let answer = answer?;
        live.sync_if_due()
            .map_err(|error| Trouble::Failed(with_causes(error)))?;
        let Live {
            instance,
            base,
            version,
            in_flight,
        } = live;
        match version.rotate_if_long(instance).await {
            Ok(instance) => {
                self.live = Some(Live {
                    instance,
                    base,
                    version,
                    in_flight,
                });
                Ok(answer)
            }
            // The next job opens it anew, and reports if that fails.
            Err(error) => Err(Trouble::Failed(format!(
                "its recording can't go on: {}",
                with_causes(error)
            ))),
        }
    }
}

const ON_OPERATION: &str = "syncer.on-operation";

/// A version with the adapter's settings for the instance of one key on top of the configured ones.
pub(super) fn of_key(base: &Instances, settings: &Map<String, Value>) -> Instances {
    let mut merged = base.clone();
    if let Value::Object(all) = &mut merged.settings {
        all.extend(settings.clone());
    } else {
        merged.settings = Value::Object(settings.clone());
    }
    merged
}

fn not_opened(error: OpenError) -> Trouble {
    if matches!(error, OpenError::Start(_)) {
        return Trouble::Fault(with_causes(error));
    }
    let damaged = matches!(error, OpenError::Journal(JournalError::Read(_)));
    let next = if damaged {
        "; repair it, or move its folder away to go on without what it says"
    } else {
        ""
    };
    Trouble::Failed(with_causes(error) + next)
}

/// The error with its causes, on one line.
fn with_causes(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_answer_is_a_fault_of_the_guest() {
        let answer = to_raw_value("yes").unwrap_or_default();
        let trouble = dispatch::read::<bool>("timer-events.on-timer", &answer).map_err(Trouble::from);
        let Err(Trouble::Fault(said)) = trouble else {
            panic!("it counts as a failure that is tried again for ever");
        };
        assert!(said.starts_with("the answer of `timer-events.on-timer`: "), "{said}");
    }
}
