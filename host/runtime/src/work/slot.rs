//! One instance of a guest: begun, called, recorded, moved to another version, and ended.
//!
//! Knows no world: its owner decides when it begins and from what, and which calls it gets.
//!
//! ```text
//! begin | resume -> call -> rotate -> call ... -> hand_over -> call ... -> end
//!                     \-> no answer: the instance is gone
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use tracing::Instrument as _;
use trueup_capabilities::Backends;
use trueup_journal::{By, Journal, JournalError};

use crate::decisions;
use crate::guests::dispatch::{self, InvokeError};
use crate::instance::Instance;
use crate::instances::{Instances, cancel};
use crate::lifecycle::active::{Active, Commit};
use crate::lifecycle::failure::Failure;

/// What a call is about, and how long it may take.
#[derive(Debug)]
pub(crate) struct About<'a> {
    /// In words, for traces.
    pub(crate) cause: &'a str,
    /// The request of another guest that the call answers.
    pub(crate) by: Option<By>,
    /// Ends a call that sleeps for longer. `None` if the call may sleep as long as it likes.
    pub(crate) sleeps_max: Option<Duration>,
}

/// One instance of the active version, or its place while there is none.
pub(crate) struct InstanceSlot {
    active: Arc<Active>,
    key: String,
    backends: Backends,
    live: Option<Instance>,
    /// Whether this process wrote the newest recording.
    is_recorded: bool,
    /// The last entry of the recording while there is no instance.
    last_entry: Option<u64>,
}

impl InstanceSlot {
    /// Begins nothing yet.
    pub(crate) fn new(active: Arc<Active>, key: &str, mut backends: Backends) -> Self {
        backends.usage = Arc::clone(&active.usage);
        Self {
            active,
            key: key.to_owned(),
            backends,
            live: None,
            is_recorded: false,
            last_entry: None,
        }
    }

    /// Holds the active version.
    pub(crate) fn active(&self) -> &Arc<Active> {
        &self.active
    }

    /// The version of the next call.
    pub(crate) fn instances(&self) -> Arc<Instances> {
        self.active.instances()
    }

    /// The key of its recording.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Whether there is an instance.
    pub(crate) fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// Whether this process wrote the newest recording.
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// The number of the last entry of its recording. `None` if it never had one in this process.
    pub(crate) fn last_entry(&self) -> Option<u64> {
        self.live.as_ref().and_then(last_entry).or(self.last_entry)
    }

    /// Begins it with its settings alone. `stands`: the store lost what it had stored with later entries than this.
    ///
    /// # Errors
    /// If it can't start. There is then no instance.
    pub(crate) async fn begin(&mut self, stands: Option<u64>) -> Result<(), Failure> {
        self.end();
        let version = self.active.instances();
        let fresh = version.open_fresh(&self.key, self.backends.clone(), stands).await;
        self.live = Some(fresh.map_err(shown)?);
        self.is_recorded = true;
        Ok(())
    }

    /// Begins it with its recorded state: exactly that after the calls that it answered, if this process recorded
    /// them.
    ///
    /// # Errors
    /// As [`InstanceSlot::begin`], and if the recording gives no state.
    pub(crate) async fn resume(&mut self) -> Result<(), Failure> {
        self.end();
        let (version, backends) = (self.active.instances(), self.backends.clone());
        let opened = if self.is_recorded {
            version.reopen(&self.key, backends).await
        } else {
            version.open(&self.key, backends).await
        };
        self.live = Some(opened.map_err(shown)?);
        self.is_recorded = true;
        Ok(())
    }

    /// Ends it, and closes its recording.
    pub(crate) fn end(&mut self) {
        self.last_entry = self.last_entry();
        self.live = None;
    }

    /// Makes a call. If it gives no answer, or its future is dropped, the instance is gone.
    ///
    /// # Errors
    /// Why there is no answer, or no readable one: the instance then remains.
    pub(crate) async fn call<R: DeserializeOwned>(
        &mut self,
        call: &str,
        args: &impl Serialize,
        about: About<'_>,
    ) -> Result<R, Failure> {
        let args = to_raw_value(args).map_err(|error| Failure::from(format!("arguments of `{call}`: {error}")))?;
        let Some(mut instance) = self.live.take() else {
            return Err(Failure::from("there is no instance".to_owned()));
        };
        let span = decisions::span(instance.host(), call, &self.key, || about.cause.to_owned());
        instance.host_mut().by = about.by;
        let calling = self.active.call(&self.key, &mut instance, call, &args);
        let calling = calling.instrument(span.clone());
        let answer = match about.sleeps_max {
            None => Some(calling.await),
            Some(max) => tokio::time::timeout(max, calling).await.ok(),
        };
        self.last_entry = last_entry(&instance).or(self.last_entry);
        let Some(answer) = answer else {
            let seconds = about.sleeps_max.unwrap_or_default().as_secs();
            let error = format!("`{call}` slept for more than {seconds} s");
            decisions::came(&span, Some(&error));
            cancel(instance, &error);
            return Err(Failure::of_guest(error));
        };
        let error = match &answer {
            Ok(result) if result.get().starts_with("{\"Err\"") => Some(result.get().to_owned()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        decisions::came(&span, error.as_deref());
        if instance.is_usable() && !matches!(answer, Err(InvokeError::Call(_))) {
            self.live = Some(instance);
        }
        dispatch::read(call, &answer.map_err(shown)?).map_err(shown)
    }

    /// The entry of the last call, for calls that follow from it. `None` if there is no instance.
    pub(crate) fn entry(&self) -> Option<By> {
        let instance = self.live.as_ref()?;
        let of = &instance.host().identity;
        Some(By {
            guest: of.guest.clone(),
            instance: of.instance.clone(),
            n: last_entry(instance),
        })
    }

    /// Call between calls: continues in a new segment of the recording if the old one is long enough.
    ///
    /// # Errors
    /// If it can't. There is then no instance.
    pub(crate) async fn rotate(&mut self) -> Result<(), Failure> {
        self.last_entry = self.last_entry();
        let Some(instance) = self.live.take() else {
            return Ok(());
        };
        let rotated = self.active.instances().rotate_if_long(instance).await;
        self.live = Some(rotated.map_err(shown)?);
        Ok(())
    }

    /// Call between calls: syncs the recording to disk if it is due.
    pub(crate) fn tick(&mut self) {
        self.in_journal(|journal| journal.tick(Instant::now()));
    }

    /// Syncs the whole recording to disk: nothing will sync it later.
    pub(crate) fn sync(&mut self) {
        self.in_journal(Journal::sync_now);
    }

    fn in_journal(&mut self, what: impl FnOnce(&mut Journal) -> Result<(), JournalError>) {
        let journal = self.live.as_mut().and_then(|it| it.host_mut().tape.journal_mut());
        if let Some(Err(error)) = journal.map(what) {
            // The next call can't be recorded either, and reports it too.
            tracing::warn!("{:#}", anyhow::Error::from(error));
        }
    }

    /// Makes another version active, and moves the instance's state to it if there is an instance. With
    /// `is_kept_elsewhere` the version becomes active also if the instance gives no state; there is then no instance.
    ///
    /// # Errors
    /// Why it is not active. Then nothing changed, unless the instance is gone.
    pub(crate) async fn hand_over(
        &mut self,
        next: Arc<Instances>,
        commit: Commit,
        is_kept_elsewhere: bool,
    ) -> Result<(), String> {
        self.last_entry = self.last_entry();
        let mut commit = Some(commit);
        if let Some(instance) = self.live.take() {
            let committing = async || commit.take().map_or(Ok(()), |commit| commit());
            match next.take_over(&self.key, instance, committing).await {
                Ok(instance) => self.live = Some(instance),
                Err((Some(left), error)) => {
                    self.live = Some(*left);
                    return Err(error);
                }
                Err((None, error)) if commit.is_some() && !is_kept_elsewhere => return Err(error),
                Err((None, error)) => tracing::warn!(instance = self.key, "its state did not move: {error}"),
            }
        }
        if let Some(commit) = commit {
            commit()?;
        }
        self.active.set(next);
        Ok(())
    }
}

/// The failure with its text cut to what an event shows.
fn shown(error: impl Into<Failure>) -> Failure {
    let failure = error.into();
    Failure {
        error: trueup_base::text::line(&failure.error),
        ..failure
    }
}

fn last_entry(instance: &Instance) -> Option<u64> {
    let journal = instance.host().tape.journal()?;
    Some(journal.next_n().saturating_sub(1))
}
