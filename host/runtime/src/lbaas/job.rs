//! The job of one key: removes what is left of it under old UIDs, reconciles it, and asks what is in service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use tracing::Instrument as _;
use trueup_base::clock::Clock;
use trueup_base::fence::Fence;
use trueup_base::text;
use trueup_capabilities::meter::{Change, Effects};
use trueup_capabilities::{Backends, lbaas};
use trueup_journal::{Journal, JournalError};

use super::granted;
use super::known::{KnownKeys, Places};
use crate::decisions::{Came, Decided};
use crate::guests::dispatch::{self, InvokeError, Unreadable};
use crate::guests::lbaas::adapter::{self, Key};
use crate::guests::lbaas::{AddressPorts, Desired, Error as Reconciliation, Report};
use crate::instance::Instance;
use crate::instances;
use crate::instances::{Instances, OpenError};
use crate::lifecycle::active::Active;
use crate::lifecycle::end::End;
use crate::work::interrupt::{Interrupt, InterruptibleClock, Sleepers};
use crate::work::publish::{Publish, Unpublished};
use crate::work::turns::{Paced, Turns};

/// The call that reconciles a Service.
const RECONCILE: &str = "reconciliation.reconcile";

/// An instance, its version, and the interrupt that ends its call while it sleeps.
pub(super) struct Live {
    pub(super) instance: Instance,
    pub(super) version: Arc<Instances>,
    pub(super) interrupt: Arc<Interrupt>,
}

impl Live {
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
    /// The desired state. `None` if the key is gone: everything of it is to be removed.
    pub(super) desired: Option<Desired>,
    /// Where objects may exist.
    pub(super) places: Places,
    /// UIDs that another key has now. This key must not remove their objects.
    pub(super) moved: BTreeSet<String>,
    /// The fence of the epoch in which it begins. In a later epoch it publishes nothing.
    pub(super) fence: Fence,
    /// The instance of the key's last job, if it is still there.
    pub(super) live: Option<Live>,
    /// Ends the call while it sleeps. That of `live`, if there is one.
    pub(super) interrupt: Arc<Interrupt>,
}

/// What all jobs share.
pub(super) struct Shared {
    pub(super) active: Arc<Active>,
    pub(super) known: Mutex<KnownKeys>,
    pub(super) settings: adapter::Settings,
    pub(super) sleepers: Arc<Sleepers>,
    pub(super) turns: Arc<Turns>,
    /// Publishes the state of a Service.
    pub(super) publish: Arc<dyn Publish>,
}

/// The result of a job.
pub(super) struct Done {
    pub(super) key: Key,
    pub(super) live: Option<Live>,
    pub(super) end: End,
    /// How much was created and destroyed, however the job ended.
    pub(super) effects: Effects,
    /// The same, object by object.
    pub(super) changes: Vec<Change>,
    /// What is in service now, if the job found it out.
    pub(super) in_service: Vec<AddressPorts>,
}

/// Why a step of a job stopped.
enum Trouble {
    Interrupted,
    Failed { error: String, retry_after_ms: Option<u64> },
    Fault(String),
}

impl Trouble {
    fn said(&self) -> &str {
        match self {
            Self::Interrupted => "ended while it slept",
            Self::Failed { error, .. } | Self::Fault(error) => error,
        }
    }
}

impl From<InvokeError> for Trouble {
    fn from(error: InvokeError) -> Self {
        if error.is_fault() {
            Self::Fault(with_causes(error))
        } else {
            Self::from(with_causes(error))
        }
    }
}

impl From<Unreadable> for Trouble {
    fn from(error: Unreadable) -> Self {
        Self::Fault(with_causes(error))
    }
}

impl From<String> for Trouble {
    fn from(error: String) -> Self {
        Self::Failed {
            error,
            retry_after_ms: None,
        }
    }
}

impl From<Unpublished> for Trouble {
    fn from(error: Unpublished) -> Self {
        match error {
            // The key runs again at once, with the current Service.
            Unpublished::Outdated => Self::Interrupted,
            Unpublished::Failed(error) => Self::from(error),
        }
    }
}

/// A running job.
struct Work<'a> {
    shared: &'a Shared,
    key: Key,
    decided: Decided,
    backends: Backends,
    fence: Fence,
    interrupt: Arc<Interrupt>,
    live: Option<Live>,
    effects: Effects,
    changes: Vec<Change>,
    /// Whether the call is to remove everything.
    removing: bool,
}

/// Runs the job to its end.
pub(super) async fn run(shared: Arc<Shared>, job: Job, backends: Backends) -> Done {
    let Job {
        decided,
        key,
        desired,
        places,
        moved,
        fence,
        live,
        interrupt,
    } = job;
    let mut work = Work {
        shared: &shared,
        key,
        decided,
        backends,
        fence,
        interrupt,
        live,
        effects: Effects::default(),
        changes: Vec::new(),
        removing: false,
    };
    let mut in_service = Vec::new();
    let end = match work.all(desired, places, moved, &mut in_service).await {
        Ok(gone) => End::True { gone },
        Err(Trouble::Interrupted) => End::Interrupted,
        Err(Trouble::Failed { error, retry_after_ms }) => End::Failed { error, retry_after_ms },
        Err(Trouble::Fault(error)) => End::Fault { error },
    };
    work.decided.end(Came::from(&end), work.effects, &work.changes);
    Done {
        key: work.key,
        live: work.live,
        end,
        effects: work.effects,
        changes: work.changes,
        in_service,
    }
}

#[derive(Serialize)]
struct Args<'a> {
    desired: &'a Desired,
}

impl Work<'_> {
    async fn all(
        &mut self,
        desired: Option<Desired>,
        places: Places,
        moved: BTreeSet<String>,
        in_service: &mut Vec<AddressPorts>,
    ) -> Result<bool, Trouble> {
        let key = self.key.to_string();
        let mut left = Vec::new();
        for (uid, on) in places {
            if moved.contains(&uid) {
                let on: Vec<String> = on.into_iter().collect();
                self.known(|known| known.forget(&key, &uid, &on))?;
                continue;
            }
            match &desired {
                // Load balancers that the configuration no longer names come after those that it names.
                Some(desired) if desired.service_uid == uid => {
                    let on = on
                        .into_iter()
                        .filter(|identifier| !desired.load_balancers.contains(identifier))
                        .collect::<Vec<_>>();
                    if !on.is_empty() {
                        left.push((uid, on));
                    }
                }
                _ => self.remove(&uid, on.into_iter().collect()).await?,
            }
        }
        let Some(desired) = desired else {
            self.shared.publish.release(&self.key, &self.fence).await?;
            return Ok(true);
        };
        // On disk before anything is created, so that it can be found again whatever happens next.
        self.known(|known| known.remember(&key, &desired.service_uid, &desired.load_balancers))?;
        let claimed = self.shared.publish.claim(&self.key, &desired.service_uid, &self.fence);
        claimed.await?;
        self.reconcile(&desired).await?;
        *in_service = addresses_only(self.call("reconciliation.status", &desired).await?)?;
        let publish = &self.shared.publish;
        let serving = publish.serve(&self.key, &desired.service_uid, in_service, &self.fence);
        serving.await?;
        for (uid, on) in left {
            self.remove(&uid, on).await?;
        }
        Ok(false)
    }

    /// Removes every object under `uid` on these load balancers.
    async fn remove(&mut self, uid: &str, on: Vec<String>) -> Result<(), Trouble> {
        let removal = adapter::removal(&self.key, uid, on.clone(), &self.shared.settings);
        self.removing = true;
        let removed = self.reconcile(&removal).await;
        self.removing = false;
        removed?;
        let key = self.key.to_string();
        self.known(|known| known.forget(&key, uid, &on))
    }

    fn known<T>(&self, change: impl FnOnce(&mut KnownKeys) -> std::io::Result<T>) -> Result<T, Trouble> {
        let mut known = self.shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut known).map_err(|error| Trouble::from(error.to_string()))
    }

    async fn reconcile(&mut self, desired: &Desired) -> Result<Report, Trouble> {
        let instances = &self.shared.active.instances();
        let identity = instances.identity(&self.key.to_string());
        granted::check(&identity, &instances.grants, &self.backends, &desired.load_balancers)?;
        self.call(RECONCILE, desired).await
    }

    /// Calls the guest, and reads its answer: `{"Ok": R}` or `{"Err": error}`. Records one decision.
    async fn call<R: DeserializeOwned>(&mut self, call: &str, desired: &Desired) -> Result<R, Trouble> {
        let called = self.called(call, desired).await;
        self.decided.end_call(called.as_ref().err().map(Trouble::said));
        called
    }

    async fn called<R: DeserializeOwned>(&mut self, call: &str, desired: &Desired) -> Result<R, Trouble> {
        let args = to_raw_value(&Args { desired }).map_err(|error| format!("arguments of `{call}`: {error}"))?;
        let mut live = match self.live.take() {
            Some(mut live) => {
                // The backends with which it was opened may be of a past epoch.
                live.instance.host_mut().backends.lbaas.clone_from(&self.backends.lbaas);
                live
            }
            // A guest may sleep in `init` too.
            None => tokio::select! {
                biased;
                opened = self.open() => opened?,
                () = self.interrupt.reached() => return Err(Trouble::Interrupted),
            },
        };
        let interrupt = Arc::clone(&self.interrupt);
        live = tokio::select! {
            biased;
            live = self.brought_up_to_date(live) => live?,
            () = interrupt.reached() => return Err(Trouble::Interrupted),
        };
        live.instance.host_mut().removing(self.removing);
        let before = live.instance.host().meter.effects;
        let key = self.key.to_string();
        let span = self.decided.begin(live.instance.host(), call, self.removing);
        let answer = tokio::select! {
            biased;
            answer = self.shared.active.call(&key, &mut live.instance, call, &args).instrument(span) => Some(answer),
            () = self.interrupt.reached() => None,
        };
        self.decided.asked(live.instance.host().meter.used.imports);
        if let Some(left) = live.instance.host().left().filter(|_| call == RECONCILE) {
            self.backends.quotas.holdings.hold(&key, left);
        }
        let after = live.instance.host().meter.effects;
        self.effects.created += after.created - before.created;
        self.effects.destroyed += after.destroyed - before.destroyed;
        self.changes.append(&mut live.instance.host_mut().changes);
        let Some(answer) = answer else {
            instances::cancel(
                live.instance,
                "ended while it slept or waited for its turn: the host stops, there is a newer input or version, or another key waits",
            );
            return Err(Trouble::Interrupted);
        };
        let answer = answer?;
        live.sync_if_due().map_err(with_causes)?;
        // If the journal of the instance can't continue, the next call opens the instance anew and reports why it
        // can't.
        let Live {
            instance,
            version,
            interrupt,
        } = live;
        let rotated = tokio::select! {
            biased;
            rotated = version.rotate_if_long(instance) => Some(rotated),
            // The answer is valid. Its recording continues in a new instance.
            () = interrupt.reached() => None,
        };
        match rotated.transpose() {
            Ok(None) => {}
            Ok(Some(instance)) => {
                self.live = Some(Live {
                    instance,
                    version,
                    interrupt,
                });
            }
            Err(error) => tracing::warn!(instance = %self.key, "its recording goes on in a new instance: {error}"),
        }
        let result: Result<R, Reconciliation> = dispatch::read(call, &answer)?;
        result.map_err(|error| Trouble::Failed {
            error: describe(&error),
            retry_after_ms: retry_after_ms(&error),
        })
    }

    /// The same instance if its version is the active one, else one of the active version with its state. If the
    /// active version refuses the state, the instance stays as it is, for when another version becomes active again.
    async fn brought_up_to_date(&mut self, live: Live) -> Result<Live, Trouble> {
        let active = self.shared.active.instances();
        if Arc::ptr_eq(&active, &live.version) {
            return Ok(live);
        }
        let Live {
            instance,
            version,
            interrupt,
        } = live;
        match active.take_over(&self.key.to_string(), instance, async || Ok(())).await {
            Ok(instance) => Ok(Live {
                instance,
                version: active,
                interrupt,
            }),
            Err((left, error)) => {
                self.live = left.map(|instance| Live {
                    instance: *instance,
                    version,
                    interrupt,
                });
                Err(Trouble::Fault(error))
            }
        }
    }

    async fn open(&self) -> Result<Live, Trouble> {
        let interrupt = Arc::clone(&self.interrupt);
        let clock: Arc<dyn Clock> = Arc::new(InterruptibleClock {
            clock: Arc::clone(&self.backends.clock),
            interrupt: Arc::clone(&interrupt),
            sleepers: Arc::clone(&self.shared.sleepers),
        });
        let pace = Paced {
            turns: Arc::clone(&self.shared.turns),
            interrupt: Arc::clone(&interrupt),
            sleepers: Arc::clone(&self.shared.sleepers),
        };
        let backends = Backends {
            clock,
            pace: Some(Arc::new(pace)),
            ..self.backends.clone()
        };
        let version = self.shared.active.instances();
        let opened = version.open(&self.key.to_string(), backends).await;
        let instance = opened.map_err(|error| {
            if matches!(error, OpenError::Start(_)) {
                return Trouble::Fault(with_causes(error));
            }
            let damaged = matches!(error, OpenError::Journal(JournalError::Read(_)));
            let next = if damaged {
                "; repair it, or move its folder away to go on without what it says"
            } else {
                ""
            };
            Trouble::from(with_causes(error) + next)
        })?;
        Ok(Live {
            instance,
            version,
            interrupt,
        })
    }
}

/// What is in service, if each address is valid: it is published as the Service's.
fn addresses_only(in_service: Vec<AddressPorts>) -> Result<Vec<AddressPorts>, Trouble> {
    let wrong = in_service.iter().find(|at| at.address.parse::<IpAddr>().is_err());
    let Some(wrong) = wrong else { return Ok(in_service) };
    let address = text::printable(&text::cut(wrong.address.clone(), ADDRESS_SHOWN_BYTES)).into_owned();
    Err(Trouble::Fault(format!(
        "the guest says that `{address}` is in service, which is no IP address"
    )))
}

/// How many bytes of an invalid address are shown. The longest valid address has 45 characters.
const ADDRESS_SHOWN_BYTES: usize = 64;

/// The error with its causes, on one line.
fn with_causes(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

fn retry_after_ms(error: &Reconciliation) -> Option<u64> {
    match error {
        Reconciliation::Api(lbaas::Error::RateLimited(after_ms)) => *after_ms,
        _ => None,
    }
}

/// An error of the guest, in an operator's words. Cut to size, since a guest may fill a whole answer.
pub(crate) fn describe(error: &Reconciliation) -> String {
    text::error(in_words(error))
}

fn in_words(error: &Reconciliation) -> String {
    match error {
        Reconciliation::InvalidInput(text) => format!("invalid input: {text}"),
        Reconciliation::Progressing(refs) => format!("not ready yet: {}", list(refs)),
        Reconciliation::RecoveryPending(refs) => format!("reset, and not ready again yet: {}", list(refs)),
        Reconciliation::Failed(refs) => format!("the Engine failed to apply: {}", list(refs)),
        Reconciliation::NotDestroyable(refs) => format!("can't be destroyed: {}", list(refs)),
        Reconciliation::TimedOut(refs) => format!("waited too long for: {}", list(refs)),
        Reconciliation::Api(error) => match error {
            lbaas::Error::NotFound => {
                "the Engine does not know the load balancer: check `load_balancers` in [adapter.lbaas]".to_owned()
            }
            lbaas::Error::RateLimited(Some(ms)) => {
                format!("the Engine limits the rate of requests, for {ms} ms from now")
            }
            lbaas::Error::RateLimited(None) => "the Engine limits the rate of requests".to_owned(),
            lbaas::Error::Unauthorized => {
                "the Engine refuses the token: check `token_file` in [backend.lbaas]".to_owned()
            }
            lbaas::Error::Refused((status, text)) => format!("the Engine refuses it: {status} {text}"),
            lbaas::Error::Unavailable(text) => format!("the Engine is not available: {text}"),
            lbaas::Error::AccessDenied(text) => format!("access denied: {text}; see `grants` in [guests.lbaas]"),
        },
    }
}

/// The maximum number of resources in one line.
const NAMED_MAX: usize = 5;

fn list(refs: &[lbaas::ObjectRef]) -> String {
    let named: Vec<String> = refs
        .iter()
        .take(NAMED_MAX)
        .map(|reference| format!("{} {}", reference.kind.name(), reference.identifier))
        .collect();
    let more = refs.len().saturating_sub(NAMED_MAX);
    if more == 0 {
        named.join(", ")
    } else {
        format!("{} and {more} more", named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_answer_is_a_fault_of_the_guest() {
        let answer = to_raw_value(&serde_json::json!({"Ok": {"created": -1}})).unwrap_or_default();
        let read = dispatch::read::<Result<Report, Reconciliation>>("reconciliation.reconcile", &answer);
        let trouble = read.map_err(Trouble::from).err();
        let Some(Trouble::Fault(said)) = trouble else {
            panic!("it counts as a failure that is tried again for ever");
        };
        assert!(said.starts_with("the answer of `reconciliation.reconcile`: "), "{said}");
    }
}
