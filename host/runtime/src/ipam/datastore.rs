//! The guest's instance with typed calls: begun, called, and begun again after it ended in a call.
//!
//! Knows the guest's exports and its recording. `actor.rs` decides when to begin it again, and what to call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use tracing::Instrument as _;
use trueup_capabilities::{Backends, Identity};
use trueup_engine::CallError;
use trueup_journal::Journal;

use super::enis::Traits;
use super::{ShownGuest, Stats};
use crate::decisions;
use crate::guests::dispatch::InvokeError;
use crate::guests::ipam::{
    AddAddress, AddEni, Assignment, DelAddress, EniInfos, Error, IpamKey, Nothing, OfKey, PodIpInfo, RemoveEni,
    RemoveUnusedEni, Stats as Counts,
};
use crate::instance::Instance;
use crate::instances::{Instances, cancel};
use crate::lifecycle::active::Active;
use crate::lifecycle::quarantine;

/// The timeout of a call that sleeps. Pods, versions and a stop wait behind it, and CNI plugins wait for 10 s. The
/// first reading asks the container runtime up to six times.
const CALL_MAX: Duration = Duration::from_secs(60);

/// The guest gave no answer. Its instance may be gone: [`Datastore::is_live`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoAnswer {
    /// One line.
    pub(super) error: String,
    /// Whether the guest failed in this call: it trapped, exceeded a limit, or gave an invalid answer. `false` for
    /// failures such as a full disk or a missing instance.
    pub(super) is_fault: bool,
}

impl NoAnswer {
    /// For a reason outside the guest.
    pub(super) fn of_host(error: String) -> Self {
        Self { error, is_fault: false }
    }
}

/// One instance of the guest, or its place while there is none.
pub(super) struct Datastore {
    active: Arc<Active>,
    /// The version of the instance, with the settings with which it is begun.
    version: Instances,
    was_read: bool,
    key: String,
    backends: Backends,
    live: Option<Instance>,
    /// Whether this process wrote the newest recording. One of an earlier process may lag behind the store.
    is_recorded: bool,
    /// The last entry of the recording, for when nothing records.
    last_entry: u64,
    /// The pod of the current request, for traces.
    about: Option<String>,
}

impl Datastore {
    pub(super) fn new(active: Arc<Active>, key: String, backends: Backends) -> Self {
        Self {
            version: (*active.instances()).clone(),
            active,
            was_read: false,
            key,
            backends,
            live: None,
            is_recorded: false,
            last_entry: 0,
            about: None,
        }
    }

    /// The next requests are about this pod, `namespace/name`.
    pub(super) fn about(&mut self, pod: Option<String>) {
        self.about = pod;
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// The key of its journal.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Its identity.
    pub(super) fn identity(&self) -> Identity {
        self.version.identity(&self.key)
    }

    /// The folder of its recording.
    pub(super) fn recording(&self) -> std::path::PathBuf {
        self.version.recording(&self.key)
    }

    /// The digest of a request together with the guest's settings, limits and grants. Ignores the phase, which
    /// changes by itself.
    pub(super) fn input(&self, request: &str) -> String {
        quarantine::input(&self.active.instances(), &request)
    }

    /// The guest, for display.
    pub(super) fn guest(&self) -> ShownGuest {
        let guest = &self.version.program.guest;
        ShownGuest {
            name: guest.name.clone(),
            version: guest.version.clone(),
            digest: guest.digest.to_string(),
        }
    }

    /// How long an address rests after its release, from the guest's settings.
    pub(super) fn cooling_period_ms(&self) -> u64 {
        /// The guest's own default: section 3 of its specification.
        const DEFAULT: u64 = 30_000;
        let set = self.version.settings.get("cooling_period_ms");
        set.and_then(serde_json::Value::as_u64).unwrap_or(DEFAULT)
    }

    /// The store was read: later instances read it too, whatever phase they were set to. Otherwise phase 1 would ask
    /// the container runtime again, which does not know yet what was just assigned, and still knows what was just
    /// freed.
    pub(super) fn was_read(&mut self) {
        self.was_read = true;
        super::set_phase(&mut self.version.settings, super::PHASE_STORE);
        // A candidate beside it gets the same settings.
        self.active.set(Arc::new(self.version.clone()));
    }

    /// The number of the last entry of its recording.
    pub(super) fn last_entry(&self) -> u64 {
        let journal = self.live.as_ref().and_then(|instance| instance.host().tape.journal());
        journal.map_or(self.last_entry, |journal| journal.next_n().saturating_sub(1))
    }

    /// Begins it with only its settings. `stands`: the store lost what it had stored with later entries than this.
    pub(super) async fn begin(&mut self, stands: Option<u64>) -> Result<(), NoAnswer> {
        self.end();
        let opened = self.version.open_fresh(&self.key, self.backends.clone(), stands).await;
        self.live = Some(opened.map_err(no_answer)?);
        self.is_recorded = true;
        Ok(())
    }

    /// Begins it again with the state after the calls that it answered.
    pub(super) async fn begin_again(&mut self) -> Result<(), NoAnswer> {
        self.end();
        if !self.is_recorded {
            return Err(NoAnswer::of_host("it has no recording of this process".to_owned()));
        }
        let opened = self.version.reopen(&self.key, self.backends.clone()).await;
        self.live = Some(opened.map_err(no_answer)?);
        Ok(())
    }

    /// Ends it, and closes its recording.
    pub(super) fn end(&mut self) {
        self.last_entry = self.last_entry();
        self.live = None;
    }

    /// Syncs the whole recording to disk: nothing will sync it later.
    pub(super) fn sync(&mut self) {
        let journal = self
            .live
            .as_mut()
            .and_then(|instance| instance.host_mut().tape.journal_mut());
        if let Some(Err(error)) = journal.map(Journal::sync_now) {
            tracing::warn!("{:#}", anyhow::Error::from(error));
        }
    }

    /// Call between calls: syncs the recording if it is due, and continues in a new segment if the old one is long
    /// enough. If that fails, the instance is gone.
    pub(super) async fn rest(&mut self) -> Result<(), NoAnswer> {
        self.last_entry = self.last_entry();
        let Some(mut instance) = self.live.take() else {
            return Ok(());
        };
        let journal = instance.host_mut().tape.journal_mut();
        if let Some(Err(error)) = journal.map(|journal| journal.tick(Instant::now())) {
            // The next call can't be recorded either, and reports it too.
            tracing::warn!("{:#}", anyhow::Error::from(error));
        }
        let instance = self.version.rotate_if_long(instance).await;
        self.live = Some(instance.map_err(no_answer)?);
        Ok(())
    }

    async fn ask<R: DeserializeOwned>(&mut self, call: &str, args: &impl Serialize) -> Result<R, NoAnswer> {
        let args = to_raw_value(args).map_err(|error| NoAnswer::of_host(format!("arguments of `{call}`: {error}")))?;
        let Some(instance) = &mut self.live else {
            return Err(NoAnswer::of_host("there is no instance".to_owned()));
        };
        let span = decisions::span(instance.host(), call, &self.key, || match &self.about {
            Some(pod) => format!("request of pod {pod}"),
            None => "request".to_owned(),
        });
        let calling = self
            .active
            .call(&self.key, instance, call, &args)
            .instrument(span.clone());
        let Ok(answer) = tokio::time::timeout(CALL_MAX, calling).await else {
            let error = format!("`{call}` slept for more than {} s", CALL_MAX.as_secs());
            decisions::came(&span, Some(&error));
            self.last_entry = self.last_entry();
            if let Some(instance) = self.live.take() {
                cancel(instance, &error);
            }
            return Err(NoAnswer { error, is_fault: true });
        };
        let error = match &answer {
            Ok(result) if result.get().starts_with("{\"Err\"") => Some(result.get().to_owned()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        decisions::came(&span, error.as_deref());
        if !instance.is_usable() || matches!(answer, Err(InvokeError::Call(_))) {
            self.end();
        }
        let answer = answer.map_err(|error| NoAnswer {
            is_fault: !matches!(error, InvokeError::Call(CallError::Tape(_))),
            ..no_answer(error)
        })?;
        serde_json::from_str(answer.get()).map_err(|error| NoAnswer {
            error: format!("the answer of `{call}`: {error}"),
            is_fault: true,
        })
    }

    /// Makes another version active, and moves the instance's state to it. If the instance gives no state and the
    /// store was read, the version becomes active without an instance: the caller must begin it from the store.
    ///
    /// # Errors
    /// Why it is not active. Then nothing changed, unless the instance is gone.
    pub(super) async fn hand_over(
        &mut self,
        next: &Arc<Instances>,
        commit: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let mut version = (**next).clone();
        if self.was_read {
            super::set_phase(&mut version.settings, super::PHASE_STORE);
        }
        self.last_entry = self.last_entry();
        // Taken by the first call.
        let mut commit = Some(commit);
        let mut commit = move || commit.take().map_or(Ok(()), |commit| commit());
        let mut is_committed = false;
        if let Some(instance) = self.live.take() {
            let commit = async || {
                commit()?;
                is_committed = true;
                Ok(())
            };
            match version.take_over(&self.key, instance, commit).await {
                Ok(instance) => self.live = Some(instance),
                Err((Some(left), error)) => {
                    self.live = Some(*left);
                    return Err(error);
                }
                Err((None, error)) if !is_committed && !self.was_read => return Err(error),
                // The store has the instance's state: the actor begins it again with this version.
                Err((None, error)) => tracing::warn!(instance = self.key, "its state did not move: {error}"),
            }
        }
        if !is_committed {
            commit()?;
        }
        self.active.set(Arc::new(version.clone()));
        self.version = version;
        Ok(())
    }

    pub(super) async fn add_eni(&mut self, id: &str, traits: Traits) -> Result<Result<(), Error>, NoAnswer> {
        let args = AddEni {
            eni_id: id.to_owned(),
            device_number: traits.device_number,
            is_primary: traits.is_primary,
            is_trunk: traits.is_trunk,
        };
        self.ask("datastore.add-eni", &args).await
    }

    pub(super) async fn add_address(&mut self, id: &str, ip: &str) -> Result<Result<(), Error>, NoAnswer> {
        let args = AddAddress {
            eni_id: id.to_owned(),
            ipv4: ip.to_owned(),
        };
        self.ask("datastore.add-ipv4-address-to-store", &args).await
    }

    /// Never by force.
    pub(super) async fn del_address(&mut self, id: &str, ip: &str) -> Result<Result<(), Error>, NoAnswer> {
        let args = DelAddress {
            eni_id: id.to_owned(),
            ipv4: ip.to_owned(),
            force: false,
        };
        self.ask("datastore.del-ipv4-address-from-store", &args).await
    }

    /// Never by force.
    pub(super) async fn remove_eni(&mut self, id: &str) -> Result<Result<(), Error>, NoAnswer> {
        let args = RemoveEni {
            eni_id: id.to_owned(),
            force: false,
        };
        self.ask("datastore.remove-eni-from-data-store", &args).await
    }

    pub(super) async fn remove_unused(&mut self, targets: super::WarmTargets) -> Result<Option<String>, NoAnswer> {
        let args = RemoveUnusedEni {
            warm_ip_target: targets.warm_ip_target,
            minimum_ip_target: targets.minimum_ip_target,
        };
        self.ask("datastore.remove-unused-eni-from-store", &args).await
    }

    pub(super) async fn read_backing_store(&mut self) -> Result<Result<(), Error>, NoAnswer> {
        self.ask("datastore.read-backing-store", &Nothing {}).await
    }

    pub(super) async fn assign(&mut self, key: IpamKey) -> Result<Result<Assignment, Error>, NoAnswer> {
        self.ask("datastore.assign-pod-ipv4-address", &OfKey { key }).await
    }

    pub(super) async fn unassign(&mut self, key: IpamKey) -> Result<Result<Assignment, Error>, NoAnswer> {
        self.ask("datastore.unassign-pod-ipv4-address", &OfKey { key }).await
    }

    pub(super) async fn find(&mut self, key: IpamKey) -> Result<Option<Assignment>, NoAnswer> {
        self.ask("datastore.find-address-for-sandbox", &OfKey { key }).await
    }

    pub(super) async fn allocated(&mut self) -> Result<Vec<PodIpInfo>, NoAnswer> {
        self.ask("datastore.allocated-ips", &Nothing {}).await
    }

    pub(super) async fn eni_infos(&mut self) -> Result<EniInfos, NoAnswer> {
        self.ask("datastore.get-eni-infos", &Nothing {}).await
    }

    /// The current counts.
    pub(super) async fn stats(&mut self) -> Result<Stats, NoAnswer> {
        let Counts { total, assigned } = self.ask("datastore.get-stats", &Nothing {}).await?;
        let enis: u32 = self.ask("datastore.get-enis", &Nothing {}).await?;
        let allocated = self.allocated().await?.len();
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Stats {
            enis: count(enis),
            addresses: count(total),
            assigned: count(assigned),
            held: allocated.saturating_sub(count(assigned)),
            free: count(total).saturating_sub(count(assigned)),
        })
    }
}

fn no_answer(error: impl Into<anyhow::Error>) -> NoAnswer {
    NoAnswer::of_host(format!("{:#}", error.into()))
}
