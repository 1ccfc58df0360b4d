//! One instance of a guest: begun, called, recorded, moved to another version, and ended.
//!
//! Knows no world: its owner decides when it begins and from what, and which calls it gets.
//!
//! ```text
//! begin | resume | ready -> call -> rotate -> call ... -> hand_over | ready -> call ... -> end
//!                            \-> no answer: the instance is gone
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tracing::Instrument as _;
use trueup_capabilities::{Backends, Host};
use trueup_instance::dispatch::{self, Answer, InvokeError};
use trueup_instance::{Instance, Instances, LastCall, OpenError, with_causes};
use trueup_journal::{By, Ending, Journal, JournalError};

use crate::decisions;
use crate::lifecycle::active::{Active, Commit};
use crate::lifecycle::failure::Failure;

/// What a call is about, and how long it may take.
#[derive(Debug)]
pub struct CallContext<'a> {
    /// In words, for traces.
    pub cause: &'a str,
    /// The request of another guest that the call answers.
    pub by: Option<By>,
    /// The object that the call is about, `namespace/name`, if its arguments do not name it.
    pub object: Option<String>,
    /// Ends a call that sleeps for longer. `None` if the call may sleep as long as it likes.
    pub sleeps_max: Option<Duration>,
}

/// One instance of a guest, or its place while there is none.
pub struct InstanceSlot {
    active: Arc<Active>,
    key: String,
    backends: Backends,
    live: Option<Open>,
    /// Whether this process wrote the newest recording.
    is_recorded: bool,
    /// The last entry of the recording while there is no instance.
    last_entry: Option<u64>,
}

/// An open instance.
pub(crate) struct Open {
    pub(crate) instance: Instance,
    /// The version that was active when it was opened.
    base: Arc<Instances>,
    /// The same with the settings of its key.
    pub(crate) form: Arc<Instances>,
}

impl InstanceSlot {
    /// Begins nothing yet.
    pub fn new(active: Arc<Active>, key: &str, backends: Backends) -> Self {
        let mut slot = Self {
            active,
            key: key.to_owned(),
            backends: Backends::default(),
            live: None,
            is_recorded: false,
            last_entry: None,
        };
        slot.set_backends(backends);
        slot
    }

    /// Calls get these backends from here on. An open instance goes on in its stream of random numbers.
    pub(crate) fn set_backends(&mut self, mut backends: Backends) {
        backends.usage = Arc::clone(&self.active.usage);
        if let Some(host) = self.host_mut() {
            host.backends = Backends {
                random: Arc::clone(&host.backends.random),
                ..backends.clone()
            };
        }
        self.backends = backends;
    }

    /// Holds the active version.
    pub fn active(&self) -> &Arc<Active> {
        &self.active
    }

    /// The version of the next call.
    pub fn instances(&self) -> Arc<Instances> {
        self.active.instances()
    }

    /// The key of its recording.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The backends of its calls.
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// The host that answers the instance. `None` if there is no instance.
    pub fn host_mut(&mut self) -> Option<&mut Host> {
        self.live.as_mut().map(|open| open.instance.host_mut())
    }

    /// When the first timer of the instance is due, by `Clock::steady_ms`. `None` if it has no timer.
    pub fn timer_ms(&self) -> Option<u64> {
        self.live.as_ref()?.instance.host().timers.next_due_ms()
    }

    /// Whether there is an instance.
    pub fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// The number of the last entry of its recording. `None` if it never had one in this process.
    pub fn last_entry(&self) -> Option<u64> {
        self.live.as_ref().and_then(Open::last_entry).or(self.last_entry)
    }

    /// Begins it with its settings alone. `valid_through`: the last entry whose writes the store still has.
    ///
    /// # Errors
    /// If it can't start. There is then no instance.
    pub async fn begin(&mut self, valid_through: Option<u64>) -> Result<(), Failure> {
        self.end();
        let version = self.active.instances();
        let backends = self.backends.clone();
        let fresh = match self.active.plan {
            None => version.open_fresh(&self.key, backends, valid_through).await,
            Some(_) => self.start_unrecorded(&version, &version.initial).await,
        };
        self.begun(fresh, version)
    }

    fn begun(&mut self, instance: Result<Instance, OpenError>, version: Arc<Instances>) -> Result<(), Failure> {
        self.live = Some(Open {
            instance: instance.map_err(|error| shown(with_causes(error)))?,
            base: Arc::clone(&version),
            form: version,
        });
        self.is_recorded = true;
        Ok(())
    }

    /// Begins it with its recorded state: exactly that after the calls that it answered, if this process recorded
    /// them.
    ///
    /// # Errors
    /// As [`InstanceSlot::begin`], and if the recording gives no state.
    pub async fn resume(&mut self) -> Result<(), Failure> {
        self.end();
        let (version, backends) = (self.active.instances(), self.backends.clone());
        let opened = match (&self.active.plan, self.is_recorded) {
            (Some(_), _) => self.open_planned(&version).await,
            (None, true) => version.reopen(&self.key, backends).await,
            (None, false) => version.open(&self.key, backends).await,
        };
        self.begun(opened, version)
    }

    /// Gets the instance: of the active version, with `settings` over the configured ones. Opens it with its recorded
    /// state, or moves its state if the version or the settings changed. Returns what came before, if it was just
    /// opened. `finishes`: see [`Instances::open_recorded`].
    ///
    /// # Errors
    /// If it can't start. If the new version refuses the state, the instance stays as it is, for when another version
    /// becomes active again.
    pub(crate) async fn ready(
        &mut self,
        settings: Option<&Map<String, Value>>,
        finishes: bool,
    ) -> Result<Option<LastCall>, Failure> {
        let base = self.active.instances();
        let form = settings.map_or_else(|| Arc::clone(&base), |settings| base.with_settings(settings));
        if let Some(open) = &self.live {
            if Arc::ptr_eq(&base, &open.base) && form.settings == open.form.settings {
                return Ok(None);
            }
            let moved = self.take_over((base, form), async || Ok(())).await;
            return moved.map(|()| None).map_err(Failure::of_guest);
        }
        let opened = match self.active.plan {
            Some(_) => self.open_planned(&form).await.map(|it| (it, LastCall::default())),
            None => form.open_recorded(&self.key, self.backends.clone(), finishes).await,
        };
        let (instance, last) = opened.map_err(not_opened)?;
        self.live = Some(Open { instance, base, form });
        Ok(Some(last))
    }

    /// In a plan: an instance that would go on from what is recorded now.
    async fn open_planned(&self, version: &Instances) -> Result<Instance, OpenError> {
        if self.is_recorded {
            let error = "a plan records nothing from which it could begin again".to_owned();
            return Err(OpenError::NoState(error));
        }
        let state = match version.program.world.is_stateless {
            true => None,
            false => version.state_now(&self.key).await.map_err(OpenError::Unreadable)?,
        };
        let state = state.as_ref().unwrap_or(&version.initial);
        self.start_unrecorded(version, state).await
    }

    async fn start_unrecorded(&self, version: &Instances, state: &str) -> Result<Instance, OpenError> {
        let started = version.start_unrecorded(&self.key, self.backends.clone(), Some(state));
        Ok(started.await?)
    }

    /// Another form of its version is active from here on. The instance gets it with its next segment.
    pub fn go_on_as(&mut self, version: Arc<Instances>) {
        self.active.set(Arc::clone(&version));
        if let Some(open) = &mut self.live {
            (open.base, open.form) = (Arc::clone(&version), version);
        }
    }

    /// Ends it, and closes its recording.
    pub fn end(&mut self) {
        self.last_entry = self.last_entry();
        self.live = None;
    }

    /// Makes a call. If it gives no answer, or its future is dropped, the instance is gone.
    ///
    /// # Errors
    /// Why there is no answer, or no readable one: the instance then remains.
    pub async fn call<R: DeserializeOwned>(
        &mut self,
        call: &str,
        args: &impl Serialize,
        about: CallContext<'_>,
    ) -> Result<R, Failure> {
        let args = arguments(call, args)?;
        let mut open = self.take()?;
        let span = decisions::span(open.instance.host(), call, &self.key, || about.cause.to_owned());
        let host = open.instance.host_mut();
        (host.by, host.about) = (about.by, about.object);
        let at_ms = open.instance.host().backends.clock.now_ms();
        let calling = self.active.call(at_ms, &self.key, &mut open.instance, call, &args);
        let calling = calling.instrument(span.clone());
        let answer = match about.sleeps_max {
            None => Some(calling.await),
            Some(max) => tokio::time::timeout(max, calling).await.ok(),
        };
        let Some(answer) = answer else {
            let seconds = about.sleeps_max.unwrap_or_default().as_secs();
            let error = format!("`{call}` slept for more than {seconds} s");
            decisions::came(&span, Some(&error));
            self.cancel(open, error.clone());
            return Err(Failure::of_guest(error));
        };
        let error = match &answer {
            Ok(result) if result.get().starts_with("{\"Err\"") => Some(result.get().to_owned()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        decisions::came(&span, error.as_deref());
        dispatch::read(call, &self.settle(open, answer).map_err(shown)?).map_err(shown)
    }

    /// Takes the instance out for a call. [`InstanceSlot::settle`] puts it back.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn take(&mut self) -> Result<Open, Failure> {
        let open = self.live.take();
        open.ok_or_else(|| Failure::from("there is no instance".to_owned()))
    }

    /// Puts the instance back after a call, if it can go on.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) fn settle(&mut self, mut open: Open, answer: Answer) -> Result<Box<RawValue>, Failure> {
        self.keep_planned(&mut open);
        self.last_entry = open.last_entry().or(self.last_entry);
        if open.instance.is_usable() && !matches!(answer, Err(InvokeError::Call(_))) {
            self.live = Some(open);
        }
        Ok(answer?)
    }

    fn keep_planned(&self, open: &mut Open) {
        if let Some(plan) = &self.active.plan {
            plan.keep(&self.key, &mut open.instance);
        }
    }

    /// Ends a call that was dropped while it slept, and the instance with it.
    pub(crate) fn cancel(&mut self, mut open: Open, why: String) {
        self.keep_planned(&mut open);
        self.last_entry = open.last_entry().or(self.last_entry);
        let mut host = open.instance.into_host();
        if let Err(error) = host.tape.end_call(&Ending::Cancelled(why)) {
            tracing::warn!(instance = self.key, "recording that a call was cancelled: {error}");
        }
    }

    /// The state of the instance. `None` if there is no instance.
    ///
    /// # Errors
    /// Why it gives none. There is then no instance.
    pub async fn snapshot(&mut self) -> Result<Option<String>, Failure> {
        let Some(open) = &mut self.live else { return Ok(None) };
        open.instance.snapshot().await.map(Some).map_err(|error| {
            self.end();
            Failure::of_guest(with_causes(error))
        })
    }

    /// The entry of the last call, for calls that follow from it. `None` if there is no instance.
    pub fn entry(&self) -> Option<By> {
        let open = self.live.as_ref()?;
        let of = &open.instance.host().identity;
        let guest = of.guest.clone();
        let instance = of.instance.clone();
        let n = open.last_entry();
        Some(By { guest, instance, n })
    }

    /// Call between calls: continues in a new segment of the recording if the old one is long enough.
    ///
    /// # Errors
    /// If it can't. There is then no instance.
    pub async fn rotate(&mut self) -> Result<(), Failure> {
        self.last_entry = self.last_entry();
        if let Some(open) = self.live.take() {
            let rotated = open.form.rotate_if_long(open.instance).await;
            let instance = rotated.map_err(|error| shown(with_causes(error)))?;
            self.live = Some(Open { instance, ..open });
        }
        Ok(())
    }

    /// Call between calls: syncs the recording to disk if it is due.
    ///
    /// # Errors
    /// If it can't. The next call can't be recorded either.
    pub(crate) fn try_tick(&mut self) -> Result<(), Failure> {
        self.in_journal(|journal| journal.tick(Instant::now()))
    }

    /// The same; the next call reports the error too.
    pub fn tick(&mut self) {
        let ticked = self.try_tick();
        self.warn(ticked);
    }

    /// Syncs the whole recording to disk: nothing will sync it later.
    pub fn sync(&mut self) {
        let synced = self.in_journal(Journal::sync_now);
        self.warn(synced);
    }

    fn in_journal(&mut self, what: impl FnOnce(&mut Journal) -> Result<(), JournalError>) -> Result<(), Failure> {
        let journal = self.host_mut().and_then(|host| host.tape.journal_mut());
        let done = journal.map_or(Ok(()), what);
        done.map_err(|error| Failure::from(with_causes(error)))
    }

    fn warn(&self, done: Result<(), Failure>) {
        if let Err(Failure { error, .. }) = done {
            tracing::warn!(instance = self.key, "{error}");
        }
    }

    /// Makes another version active, and moves the instance's state to it if there is an instance. With
    /// `is_kept_elsewhere` the version becomes active also if the instance gives no state; there is then no instance.
    ///
    /// # Errors
    /// Why it is not active. Then nothing changed, unless the instance is gone.
    pub async fn hand_over(
        &mut self,
        next: Arc<Instances>,
        commit: Commit,
        is_kept_elsewhere: bool,
    ) -> Result<(), String> {
        let mut commit = Some(commit);
        let committing = async || commit.take().map_or(Ok(()), |commit| commit());
        if let Err(error) = self.take_over((Arc::clone(&next), Arc::clone(&next)), committing).await {
            if self.is_live() || commit.is_some() && !is_kept_elsewhere {
                return Err(error);
            }
            tracing::warn!(instance = self.key, "its state did not move: {error}");
        }
        if let Some(commit) = commit {
            commit()?;
        }
        self.active.set(next);
        Ok(())
    }

    /// Moves the instance's state to another version, if there is an instance.
    ///
    /// # Errors
    /// Why it did not move.
    async fn take_over(
        &mut self,
        (base, form): (Arc<Instances>, Arc<Instances>),
        commit: impl AsyncFnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        self.last_entry = self.last_entry();
        let Some(open) = self.live.take() else { return Ok(()) };
        let (live, moved) = match form.take_over(&self.key, open.instance, commit).await {
            Ok(instance) => (Some((instance, base, form)), Ok(())),
            Err((left, error)) => (left.map(|left| (*left, open.base, open.form)), Err(error)),
        };
        self.live = live.map(|(instance, base, form)| Open { instance, base, form });
        moved
    }
}

impl Open {
    fn last_entry(&self) -> Option<u64> {
        Some(self.instance.host().tape.journal()?.next_n().saturating_sub(1))
    }
}

/// The arguments of a call, as JSON.
///
/// # Errors
/// If they have no such form.
pub(crate) fn arguments(call: &str, args: &impl Serialize) -> Result<Box<RawValue>, Failure> {
    to_raw_value(args).map_err(|error| Failure::from(format!("arguments of `{call}`: {error}")))
}

fn not_opened(error: OpenError) -> Failure {
    if matches!(error, OpenError::Start(_)) {
        return Failure::of_guest(with_causes(error));
    }
    let damaged = matches!(error, OpenError::Journal(JournalError::Read(_)));
    let next = "; repair it, or move its folder away to go on without what it says";
    Failure::from(with_causes(error) + if damaged { next } else { "" })
}

/// The failure with its text cut to what an event shows.
fn shown(error: impl Into<Failure>) -> Failure {
    let mut failure = error.into();
    failure.error = trueup_base::text::line(&failure.error);
    failure
}
