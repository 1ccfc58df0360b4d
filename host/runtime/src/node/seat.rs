//! The one instance of a guest on this node: opened at its first call, called with typed arguments, and opened again
//! after a call in which it ended.
//!
//! The host can repeat everything that it knows. If its recording gives no state to continue from, it begins with its
//! settings.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use tracing::Instrument as _;
use trueup_capabilities::Backends;
use trueup_journal::{By, Journal};

use crate::decisions;
use crate::guests::dispatch::{self, InvokeError, Unreadable};
use crate::instance::Instance;
use crate::instances::Instances;
use crate::lifecycle::active::{Active, Handover};

/// The guest gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoAnswer {
    /// One line.
    pub(super) error: String,
    /// Whether the guest failed in this call: it trapped or exceeded a limit. `false` for failures such as a full
    /// disk.
    pub(super) is_fault: bool,
}

impl From<InvokeError> for NoAnswer {
    fn from(error: InvokeError) -> Self {
        Self {
            is_fault: error.is_fault(),
            error: with_causes(error),
        }
    }
}

impl From<Unreadable> for NoAnswer {
    fn from(error: Unreadable) -> Self {
        Self {
            error: with_causes(error),
            is_fault: true,
        }
    }
}

/// The place of one instance.
pub(super) struct Seat {
    active: Arc<Active>,
    key: String,
    backends: Backends,
    live: Option<Live>,
    /// Whether this process wrote the newest recording.
    is_recorded: bool,
    /// Whether it began with its settings alone and got no full resync since.
    is_blank: bool,
    /// The entry of the last call that was answered.
    last_entry: Option<By>,
}

struct Live {
    instance: Instance,
    version: Arc<Instances>,
}

impl Seat {
    /// Opens nothing yet.
    pub(super) fn new(active: Arc<Active>, key: &str, mut backends: Backends) -> Self {
        backends.usage = Arc::clone(&active.usage);
        Self {
            active,
            key: key.to_owned(),
            backends,
            live: None,
            is_recorded: false,
            is_blank: false,
            last_entry: None,
        }
    }

    /// Holds the active version.
    pub(super) fn active(&self) -> Arc<Active> {
        Arc::clone(&self.active)
    }

    /// The version of the next call.
    pub(super) fn instances(&self) -> Arc<Instances> {
        self.active.instances()
    }

    /// The name in messages: `NAME/KEY`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.active.instances().name, self.key)
    }

    /// Makes a call that is a full resync. `by` is the request of another guest that this answers.
    ///
    /// # Errors
    /// Why there is no answer. The next call has an instance again.
    pub(super) async fn tell_all<R: DeserializeOwned>(
        &mut self,
        call: &str,
        args: &impl Serialize,
        by: Option<By>,
    ) -> Result<R, NoAnswer> {
        let answer = self.call(call, args, by).await;
        if answer.is_ok() {
            self.is_blank = false;
        }
        answer
    }

    /// Makes a call that depends on earlier ones. Refuses it if the instance began with its settings alone since
    /// then: it would take the little it gets for everything.
    ///
    /// # Errors
    /// As [`Seat::tell_all`], and if it needs a full resync first.
    pub(super) async fn ask<R: DeserializeOwned>(
        &mut self,
        call: &str,
        args: &impl Serialize,
        by: Option<By>,
    ) -> Result<R, NoAnswer> {
        if self.live.is_none() {
            self.live = Some(self.open().await?);
        }
        if self.is_blank {
            return Err(of_host(
                "it lost what it was told, and is told everything again".to_owned(),
            ));
        }
        self.call(call, args, by).await
    }

    async fn call<R: DeserializeOwned>(
        &mut self,
        call: &str,
        args: &impl Serialize,
        by: Option<By>,
    ) -> Result<R, NoAnswer> {
        let args = to_raw_value(args).map_err(|error| of_host(format!("arguments of `{call}`: {error}")))?;
        let mut live = match self.live.take() {
            Some(live) => live,
            None => self.open().await?,
        };
        let instance = &mut live.instance;
        let span = decisions::span(instance.host(), call, &self.key, || "event".to_owned());
        instance.host_mut().by = by;
        let calling = self.active.call(&self.key, instance, call, &args);
        let answer = calling.instrument(span.clone()).await;
        let said = answer.as_ref().err().map(ToString::to_string);
        decisions::came(&span, said.as_deref());
        let answer = answer?;
        let host = live.instance.host();
        self.last_entry = Some(By {
            guest: host.identity.guest.clone(),
            instance: host.identity.instance.clone(),
            n: host.tape.journal().map(|journal| journal.next_n().saturating_sub(1)),
        });
        let version = Arc::clone(&live.version);
        match version.rotate_if_long(live.instance).await {
            Ok(instance) => self.live = Some(Live { instance, version }),
            // It answered. The next call opens it again, and reports if that fails.
            Err(error) => tracing::warn!(instance = self.key, "its recording can't go on: {}", with_causes(error)),
        }
        Ok(dispatch::read(call, &answer)?)
    }

    /// The entry of the last call that was answered, for calls that follow from it.
    pub(super) fn last_entry(&self) -> Option<By> {
        self.last_entry.clone()
    }

    async fn open(&mut self) -> Result<Live, NoAnswer> {
        let version = self.active.instances();
        let opened = if self.is_recorded {
            version.reopen(&self.key, self.backends.clone()).await
        } else {
            version.open(&self.key, self.backends.clone()).await
        };
        let instance = match opened {
            Ok(instance) => instance,
            Err(error) => {
                tracing::warn!(
                    instance = self.key,
                    "guest `{}` begins with its settings alone, and is told everything again: {}",
                    version.name,
                    with_causes(error)
                );
                return self.open_fresh(version).await;
            }
        };
        self.is_recorded = true;
        Ok(Live { instance, version })
    }

    async fn open_fresh(&mut self, version: Arc<Instances>) -> Result<Live, NoAnswer> {
        let fresh = version.open_fresh(&self.key, self.backends.clone(), None).await;
        let instance = fresh.map_err(|error| of_host(with_causes(error)))?;
        (self.is_blank, self.is_recorded) = (true, true);
        Ok(Live { instance, version })
    }

    /// Restarts it with its settings alone: its earlier state is no longer valid.
    ///
    /// # Errors
    /// If it can't start. The next call has an instance again.
    pub(super) async fn begin_anew(&mut self) -> Result<(), NoAnswer> {
        self.live = None;
        self.live = Some(self.open_fresh(self.active.instances()).await?);
        Ok(())
    }

    /// Makes another version active, and moves the instance's state to it.
    pub(super) async fn hand_over(&mut self, handover: Handover) -> bool {
        let Handover {
            instances,
            commit,
            reply,
        } = handover;
        let mut commit = Some(commit);
        let mut commit = move || commit.take().map_or(Ok(()), |commit| commit());
        let mut is_committed = false;
        let live = match self.live.take() {
            Some(live) => Ok(live),
            // The candidate must be tried on the state with which it is to continue.
            None => self.open().await,
        };
        let moved = match live {
            Err(no_answer) => Err(no_answer.error),
            Ok(Live { instance, version }) => {
                let commit = async || {
                    commit()?;
                    is_committed = true;
                    Ok(())
                };
                match instances.take_over(&self.key, instance, commit).await {
                    Ok(instance) => {
                        self.live = Some(Live {
                            instance,
                            version: Arc::clone(&instances),
                        });
                        Ok(())
                    }
                    Err((Some(left), error)) => {
                        self.live = Some(Live {
                            instance: *left,
                            version,
                        });
                        Err(error)
                    }
                    Err((None, error)) if is_committed => {
                        tracing::warn!(instance = self.key, "its state did not move: {error}");
                        Ok(())
                    }
                    Err((None, error)) => Err(error),
                }
            }
        };
        let is_active = moved.is_ok();
        if is_active {
            self.active.set(instances);
        }
        // The caller may have disconnected.
        let _ = reply.send(moved);
        is_active
    }

    /// Call between calls: syncs the recording to disk if it is due.
    pub(super) fn rest(&mut self) {
        self.in_journal(|journal| journal.tick(Instant::now()));
    }

    /// Syncs the whole recording to disk: nothing will sync it later.
    pub(super) fn sync(&mut self) {
        self.in_journal(Journal::sync_now);
    }

    fn in_journal(&mut self, what: impl FnOnce(&mut Journal) -> Result<(), trueup_journal::JournalError>) {
        let Some(live) = &mut self.live else { return };
        let journal = live.instance.host_mut().tape.journal_mut();
        if let Some(Err(error)) = journal.map(what) {
            // The next call can't be recorded either, and reports it too.
            tracing::warn!("{:#}", anyhow::Error::from(error));
        }
    }
}

fn of_host(error: String) -> NoAnswer {
    NoAnswer { error, is_fault: false }
}

/// The error with its causes, on one line.
fn with_causes(error: impl Into<anyhow::Error>) -> String {
    trueup_base::text::line(&format!("{:#}", error.into()))
}
