//! A running guest as the manager sees it, and what is said of it: its state, its changes, why nothing was done. And
//! the requests for another version of it, if its failure policy names one.

use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_config::{FailurePolicy, Guest, OnFailure};
use trueup_instance::Worlds;
use trueup_registry::Reference;

use super::manager::Manager;
use super::proof::{Fetched, Refused, Report};
use super::revisions::{By, Revision, Revisions};
use crate::gate::Mode;
use crate::lifecycle::active::{Active, Handover};
use crate::lifecycle::quarantine::{Quarantine, SetAside};
use crate::shadow::{self, Shadow};

/// A running guest, as the manager sees it.
pub struct Managed {
    pub name: &'static str,
    pub(crate) worlds: Worlds,
    pub(crate) config: Guest,
    pub active: Arc<Active>,
    pub(crate) revisions: Arc<Mutex<Revisions>>,
    /// To the loop or the actor that calls the guest.
    pub(crate) handovers: mpsc::Sender<Handover>,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) metrics: Arc<Metrics>,
    /// Locked during a change.
    pub(crate) changing: tokio::sync::Mutex<()>,
    pub(crate) compared: Mutex<Option<Compared>>,
    /// A promotion that waits for so many calls, and what waits. Dropping that ends it.
    pub(crate) promotion: Mutex<Option<(u64, JoinSet<()>)>>,
}

impl Managed {
    /// That the version of the configuration was refused at the start, in one line. `None` also after a command.
    pub fn refused(&self) -> Option<String> {
        let refused = self.revisions.lock().refused()?.reference.clone();
        let name = self.name;
        let file = self.config.file();
        Some(format!(
            "guest `{name}`: {refused} was refused when the host started, and another version stays active with its own \
             settings: trueup check --config {file} says why"
        ))
    }

    /// The status of its comparison, with the promotion that waits.
    pub(super) fn compared_so_far(&self, shadow: &Shadow) -> shadow::Status {
        shadow::Status {
            promoted_after: self.promotion.lock().as_ref().map(|(after, _)| *after),
            ..shadow.status()
        }
    }
}

/// A candidate in shadow.
#[derive(Clone)]
pub(crate) struct Compared {
    pub(super) shadow: Arc<Shadow>,
    /// Its bytes are in the store.
    pub(super) candidate: Fetched,
    pub(super) reference: String,
    pub(super) afresh: bool,
}

/// A version that became active, or would.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Activated {
    /// The guest.
    pub guest: String,
    /// Its revision number. `None` for a dry run.
    pub revision: Option<u64>,
    /// The name in its metadata.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    /// Why it became active.
    pub by: By,
    /// A note, in one line, such as the revision that a rollback went to. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The results of its checks.
    pub proof: Report,
}

impl Display for Activated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, version, proof) = (&self.name, &self.version, &self.proof);
        match self.revision {
            Some(revision) => write!(f, "`{name}@{version}` is active as revision {revision}: {proof}")?,
            None => write!(f, "`{name}@{version}` would become active: {proof}")?,
        }
        match &self.note {
            Some(note) if self.by == By::Rollback => write!(f, "; back {note}"),
            _ => Ok(()),
        }
    }
}

/// A version to make active, and how to check it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The guest's reference.
    pub reference: Reference,
    /// The gate's mode, if it replaces the configured one.
    pub gate: Option<Mode>,
    /// Whether to only check it.
    pub dry_run: bool,
    /// Whether it begins without the state of the active version.
    pub afresh: bool,
}

/// Why nothing was done, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// This host has no such guest, or it has no version or shadow to which the command applies.
    #[error("{0}")]
    NotFound(String),
    /// Another change of the guest is under way.
    #[error("guest `{0}` is being changed by another command; try again when it is done")]
    Busy(String),
    /// The candidate was refused: the active version stays active.
    #[error("{0}")]
    Refused(String),
}

impl ManageError {
    pub(super) fn nothing(guest: &str, why: impl Display) -> Self {
        Self::NotFound(format!("guest `{guest}`: {why}"))
    }

    pub(super) fn refused(guest: &str, reference: impl Display, refused: &Refused, active: &str) -> Self {
        let why = format!("guest `{guest}`: {reference} is {refused}; {active} stays active");
        Self::Refused(why)
    }
}

/// The state of a promotion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promotion {
    /// It is done.
    Done(Box<Activated>),
    /// It follows when this many calls in a row are the same.
    Awaited {
        /// The required number of calls.
        after: u64,
        /// The number so far.
        same_in_a_row: u64,
    },
}

/// The state of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestStatus {
    /// The guest.
    pub guest: String,
    /// Its active revision.
    pub active: Option<Revision>,
    /// Inputs that are set aside, by instance.
    pub quarantined: Vec<SetAside>,
    /// The status of the shadow. `None` if there is none.
    pub shadow: Option<shadow::Status>,
    /// How many calls in a row must be the same before the shadow is promoted. `None` if only a command promotes it.
    pub promoted_after: Option<u64>,
}

/// A change of a guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Another version is active.
    Activated(Box<Activated>),
    /// A version did not become active, in a change that has no waiting caller.
    Refused(String),
}

/// A request for the version that a failure policy names: the guest failed with an input so often that the input is set
/// aside.
pub struct FallBack {
    pub(super) guest: &'static str,
    pub(super) to: Reference,
    /// `sha256:` and the digest of the version that failed.
    pub(super) digest: String,
    /// The input, how often and how it failed, in one line.
    pub why: String,
    /// Notified when the other version is active, or will not be. Dropped without an answer if the host ends.
    answer: oneshot::Sender<()>,
}

/// The requests of one guest. One at a time: the other version also releases whatever else fails meanwhile.
pub(crate) struct FallBackRequests {
    requests: mpsc::UnboundedSender<FallBack>,
    /// `None` if the policy names no other version.
    to: Option<Reference>,
    /// Receives an answer when the request was fulfilled or refused. `None` if there is no request.
    under_way: Option<oneshot::Receiver<()>>,
}

impl FallBackRequests {
    /// Starts without a request.
    pub(crate) fn new(requests: mpsc::UnboundedSender<FallBack>, policy: &FailurePolicy) -> Self {
        Self {
            requests,
            to: match &policy.on_failure {
                OnFailure::FallBack(to) => Some(to.clone()),
                OnFailure::Hold | OnFailure::Retry => None,
            },
            under_way: None,
        }
    }

    /// Requests the other version because of what was set aside, unless a request is under way.
    pub(crate) fn request(&mut self, guest: &'static str, entry: &SetAside) {
        let Some(to) = self.to.clone() else { return };
        if self.is_under_way() {
            return;
        }
        let (answer, answered) = oneshot::channel();
        let request = FallBack {
            guest,
            to,
            digest: entry.digest.clone(),
            why: format!("{} failed {} times: {}", entry.instance, entry.failures, entry.error),
            answer,
        };
        self.under_way = self.requests.send(request).is_ok().then_some(answered);
    }

    /// Whether a request waits for its answer. A request whose receiver is gone does not.
    pub(crate) fn is_under_way(&mut self) -> bool {
        let is_over = |answer: &mut oneshot::Receiver<()>| answer.try_recv() != Err(TryRecvError::Empty);
        self.under_way.take_if(is_over);
        self.under_way.is_some()
    }

    /// Returns when the request was answered, either way. Never returns if there is none. Safe to drop.
    pub(crate) async fn answered(&mut self) {
        match &mut self.under_way {
            Some(answer) => _ = answer.await,
            None => std::future::pending().await,
        }
        self.under_way = None;
    }
}

/// Handles the requests of all guests. No guest waits for another's.
pub async fn fall_back(manager: &Arc<Manager>, mut requests: mpsc::UnboundedReceiver<FallBack>) {
    let mut falling = JoinSet::new();
    while let Some(request) = requests.recv().await {
        let manager = Arc::clone(manager);
        while falling.try_join_next().is_some() {}
        falling.spawn(async move {
            if let Err(error) = manager.fall_back(&request).await {
                manager.report_refused(&error);
            }
            // The requester may be gone.
            let _ = request.answer.send(());
        });
    }
    falling.join_all().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(instance: &str) -> SetAside {
        SetAside {
            instance: instance.to_owned(),
            error: "trapped".to_owned(),
            failures: 3,
            at_ms: 1,
            digest: "sha256:1".to_owned(),
            input: "sha256:2".to_owned(),
            journal: "journals".into(),
        }
    }

    #[tokio::test]
    async fn one_request_is_under_way_until_it_is_answered_or_cannot_be() {
        let (sender, mut requested) = mpsc::unbounded_channel();
        let policy = |on_failure| FailurePolicy {
            on_failure,
            ..FailurePolicy::default()
        };
        let to = policy(OnFailure::FallBack(Reference::builtin("lbaas@1")));
        let mut requests = FallBackRequests::new(sender.clone(), &to);
        assert!(!requests.is_under_way());
        requests.request("lbaas", &entry("a"));
        requests.request("lbaas", &entry("b"));
        let first = requested.recv().await.unwrap();
        assert_eq!(
            (first.guest, first.digest.as_str(), first.why.as_str()),
            ("lbaas", "sha256:1", "a failed 3 times: trapped")
        );
        assert!(requested.try_recv().is_err() && requests.is_under_way());
        first.answer.send(()).unwrap();
        requests.answered().await;
        assert!(!requests.is_under_way());

        requests.request("lbaas", &entry("c"));
        drop(requested.recv().await.unwrap());
        assert!(!requests.is_under_way(), "no receiver answers");
        let mut without = FallBackRequests::new(sender, &policy(OnFailure::Retry));
        without.request("lbaas", &entry("d"));
        assert!(
            requested.try_recv().is_err() && !without.is_under_way(),
            "no version is named"
        );
        drop(requested);
        requests.request("lbaas", &entry("d"));
        assert!(!requests.is_under_way(), "no receiver takes it");
    }
}
