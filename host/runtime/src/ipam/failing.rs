//! Requests in which the guest fails again and again: counted, and set aside where the failure policy says so.
//!
//! Whoever asked tries again by itself, so a request is never repeated here; one that is set aside is refused at once, so
//! that it ends no instance any more that others use.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use trueup_capabilities::clock::{Clock as _, SystemClock};

use super::datastore::Datastore;
use super::protocol::Command;
use crate::config::{FailurePolicy, OnFailure};
use crate::run::quarantine::{Quarantine, SetAside, digest_of};

/// So many failing requests are counted; a node has fewer pods.
const FAILING_MAX: usize = 1_000;

/// The requests of one instance that fail.
#[derive(Default)]
pub(crate) struct Failing {
    watch: Option<Watch>,
    /// How often in a row the guest failed in a request.
    failures: BTreeMap<String, u32>,
}

struct Watch {
    quarantine: Arc<Quarantine>,
    policy: FailurePolicy,
    fall_back: mpsc::UnboundedSender<String>,
    /// The version that failed when another was wished for.
    fell_from: Option<String>,
}

impl Failing {
    pub(crate) fn new(
        quarantine: Arc<Quarantine>,
        policy: FailurePolicy,
        fall_back: mpsc::UnboundedSender<String>,
    ) -> Self {
        Self {
            watch: Some(Watch {
                quarantine,
                policy,
                fall_back,
                fell_from: None,
            }),
            failures: BTreeMap::new(),
        }
    }

    /// Why a request is refused without asking the guest; none: it is asked.
    pub(super) fn set_aside(&self, command: &Command, datastore: &Datastore) -> Option<String> {
        let watch = self.watch.as_ref()?;
        let request = name_of(command, datastore)?;
        let held = watch
            .quarantine
            .holds(&request, &digest_of(&request), &datastore.guest().digest)?;
        Some(format!(
            "the guest failed in this {} times in a row, and is not asked again until another version is active: {}",
            held.failures, held.error
        ))
    }

    pub(super) fn succeeded(&mut self, command: &Command, datastore: &Datastore) {
        if !self.failures.is_empty()
            && let Some(request) = name_of(command, datastore)
        {
            self.failures.remove(&request);
        }
    }

    /// The guest failed in a request: it may be set aside, or another version wished for.
    pub(super) fn failed(&mut self, command: &Command, error: &str, datastore: &Datastore) {
        let Some(watch) = &mut self.watch else { return };
        let Some(request) = name_of(command, datastore) else {
            return;
        };
        if self.failures.len() >= FAILING_MAX {
            self.failures.clear();
        }
        let failures = self.failures.entry(request.clone()).or_default();
        *failures += 1;
        let failures = *failures;
        let enough = match watch.policy.on_failure {
            OnFailure::Hold => 1,
            OnFailure::Retry | OnFailure::FallBack(_) => watch.policy.quarantine_after,
        };
        if failures < enough {
            return;
        }
        self.failures.remove(&request);
        let digest = datastore.guest().digest;
        if matches!(watch.policy.on_failure, OnFailure::FallBack(_)) && watch.fell_from.as_ref() != Some(&digest) {
            watch.fell_from = Some(digest);
            // Whoever manages guests goes after the instance.
            let _ = watch
                .fall_back
                .send(format!("{request} failed {failures} times: {error}"));
            return;
        }
        tracing::warn!("{request}: set aside after {failures} failures in a row: {error}");
        let written = watch.quarantine.set_aside(SetAside {
            input: digest_of(&request),
            instance: request,
            error: error.to_owned(),
            failures,
            at_ms: SystemClock.now_ms(),
            digest,
            journal: datastore.recording(),
        });
        if let Err(error) = written {
            tracing::warn!("it is set aside until the next start alone: {error}");
        }
    }

    /// Another version is asked from here on: everything is tried again.
    pub(super) fn forget(&mut self) {
        self.failures.clear();
        if let Some(watch) = &self.watch {
            watch.quarantine.release_all();
        }
    }
}

/// The request in words; none: it is not one of a pod.
fn name_of(command: &Command, datastore: &Datastore) -> Option<String> {
    let (verb, key) = match command {
        Command::Add(key) => ("ADD", key),
        Command::Del(key) => ("DEL", key),
        Command::Check(key) => ("CHECK", key),
        Command::Gc(_) | Command::Status | Command::Show => return None,
    };
    Some(format!(
        "{} {verb} {}/{}/{}",
        datastore.key(),
        key.network_name,
        key.container_id,
        key.if_name
    ))
}
