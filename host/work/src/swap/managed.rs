//! A running guest as the manager sees it, and what is said of it: its state, its changes, why nothing was done.

use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_config::Guest;
use trueup_instance::Worlds;
use trueup_registry::Reference;

use super::fetch::Fetched;
use super::proof::{Refused, Report};
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
    pub(crate) promotion: Mutex<Option<Awaited>>,
}

impl Managed {
    /// That the version of the configuration was refused at the start, in one line. `None` also after a command.
    pub fn refused(&self) -> Option<String> {
        let refused = self.revisions.lock().refused()?.reference.clone();
        Some(format!(
            "guest `{}`: {refused} was refused when the host started, and another version stays active with its own settings: \
             trueup check --config {} says why",
            self.name,
            self.config.file()
        ))
    }

    /// The status of its comparison, with the promotion that waits.
    pub(super) fn compared_so_far(&self, shadow: &Shadow) -> shadow::Status {
        shadow::Status {
            promoted_after: self.promotion.lock().as_ref().map(|awaited| awaited.after),
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

/// A promotion that waits for its count.
pub(crate) struct Awaited {
    pub(super) after: u64,
    pub(super) task: tokio::task::JoinHandle<()>,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.task.abort();
    }
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
        let Self {
            name, version, proof, ..
        } = self;
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
        Self::Refused(format!(
            "guest `{guest}`: {reference} is {refused}; {active} stays active"
        ))
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
