//! Requests in which the guest fails repeatedly: counts them, and sets them aside if the failure policy says so.
//!
//! The requester retries by itself, so the host never repeats a request. It refuses a request that is set aside at
//! once, so that the request no longer ends an instance that others use.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::Identity;

use super::datastore::{Datastore, NoAnswer};
use super::protocol::Command;
use crate::config::FailurePolicy;
use crate::guests::ipam::IpamKey;
use crate::lifecycle::quarantine::{Quarantine, SetAside};
use crate::lifecycle::troubles::enough;
use crate::swap::Fallen;
use crate::work::falling::Falling;

/// The maximum number of failing requests that are counted. A node has fewer pods.
const FAILING_MAX: usize = 1_000;

/// The maximum number of requests that are set aside; the newest stay. A retried pod has a new name each time, and
/// the client may never report that it gave up on the old one.
const SET_ASIDE_MAX: usize = 1_000;

/// The failing requests of one instance.
#[derive(Default)]
pub(crate) struct Failing {
    watch: Option<Watch>,
    /// How often in a row the guest failed in each request.
    failures: BTreeMap<String, u32>,
}

struct Watch {
    quarantine: Arc<Quarantine>,
    policy: FailurePolicy,
    falling: Falling,
}

impl Failing {
    pub(crate) fn new(
        quarantine: Arc<Quarantine>,
        policy: FailurePolicy,
        fall_back: mpsc::UnboundedSender<Fallen>,
    ) -> Self {
        Self {
            watch: Some(Watch {
                quarantine,
                policy,
                falling: Falling::new(fall_back),
            }),
            failures: BTreeMap::new(),
        }
    }

    /// Why a request is refused without calling the guest. `None` if the guest is to be called.
    pub(super) fn set_aside(&self, command: &Command, datastore: &Datastore) -> Option<String> {
        let watch = self.watch.as_ref()?;
        let request = name_of(command, datastore.key())?;
        if !watch.quarantine.has(&request) {
            return None;
        }
        let digest = datastore.guest().digest;
        let held = watch.quarantine.holds(&request, &datastore.input(&request), &digest)?;
        Some(format!(
            "the guest failed in this {} times in a row, and is not asked again until another version is active: {}",
            held.failures, held.error
        ))
    }

    /// The guest answered a request, whatever the answer.
    pub(super) fn answered(&mut self, command: &Command, datastore: &Datastore) {
        let Some(watch) = &self.watch else { return };
        if self.failures.is_empty() && watch.quarantine.is_empty() {
            return;
        }
        // There are no further requests about a pod that has ended.
        let ended = match command {
            Command::Del(key) => vec![Command::Add(key.clone()), Command::Check(key.clone())],
            _ => Vec::new(),
        };
        for request in std::iter::once(command).chain(&ended) {
            if let Some(request) = name_of(request, datastore.key()) {
                self.failures.remove(&request);
                watch.quarantine.release(&request);
            }
        }
    }

    /// The guest gave no answer. If the guest is to blame, may set the request aside and request another version.
    pub(super) fn failed(&mut self, command: &Command, no_answer: &NoAnswer, datastore: &Datastore) {
        let NoAnswer { error, is_fault: true } = no_answer else {
            return;
        };
        let Some(watch) = &mut self.watch else { return };
        let Some(request) = name_of(command, datastore.key()) else {
            return;
        };
        if self.failures.len() >= FAILING_MAX && !self.failures.contains_key(&request) {
            self.failures.clear();
        }
        let failures = self.failures.entry(request.clone()).or_default();
        *failures += 1;
        let failures = *failures;
        if failures < enough(&watch.policy) {
            return;
        }
        self.failures.remove(&request);
        let about = datastore.identity();
        let entry = SetAside {
            input: datastore.input(&request),
            instance: request,
            error: error.clone(),
            failures,
            at_ms: SystemClock.now_ms(),
            digest: about.digest.clone(),
            journal: datastore.recording(),
        };
        watch.set_aside(&about, entry);
    }

    /// Another version is active: everything is tried again.
    pub(super) fn forget(&mut self) {
        self.failures.clear();
        if let Some(watch) = &self.watch {
            watch.quarantine.release_all();
        }
    }
}

impl Watch {
    fn set_aside(&mut self, about: &Identity, entry: SetAside) {
        let SetAside {
            instance,
            failures,
            error,
            ..
        } = &entry;
        tracing::warn!("{instance}: set aside after {failures} failures in a row: {error}");
        if let Err(error) = self.quarantine.set_aside(about, entry.clone()) {
            tracing::warn!("it is set aside until the next start alone: {error}");
        }
        // The version that becomes active finds it set aside, and releases it.
        self.falling.wish(&entry);
        self.quarantine.keep_newest(SET_ASIDE_MAX);
    }
}

/// The request in words. `None` if it is not about a pod.
fn name_of(command: &Command, instance: &str) -> Option<String> {
    let (verb, key) = match command {
        Command::Add(key) => ("ADD", key),
        Command::Del(key) => ("DEL", key),
        Command::Check(key) => ("CHECK", key),
        Command::Gc(_) | Command::Status | Command::Show => return None,
    };
    let IpamKey {
        network_name,
        container_id,
        if_name,
    } = key;
    Some(format!("{instance} {verb} {network_name}/{container_id}/{if_name}"))
}
