//! The state of pod addresses, as the events report it.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trueup_base::text::counted;

use super::shown::PodsShown;

/// What serving pods reports to its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The store was read: pods get addresses from here on. Sent after every reading, also that of a rebuilt
    /// instance.
    Read {
        /// The instance.
        instance: String,
        /// The current counts.
        stats: Stats,
    },
    /// The number of addresses or the problems with them changed. Sent at most once a second.
    Counted {
        /// The instance.
        instance: String,
        /// The current counts.
        stats: Stats,
        /// One line each. Empty if there are no problems.
        problems: Vec<String>,
    },
    /// The store could not be read: pods get no addresses until it can.
    ReadingFailed {
        /// The instance.
        instance: String,
        /// One line.
        error: String,
        /// When the host tries again. `None` if it has given up.
        again_in_ms: Option<u64>,
    },
    /// The host accepts requests of pods.
    Listening {
        /// The socket.
        socket: PathBuf,
    },
    /// An interface was given up, and can be detached.
    Released {
        /// The instance.
        instance: String,
        /// The interface's id.
        eni: String,
    },
    /// The host worked off releases that the CNI plugin left while the host was down.
    Spool {
        /// The instance.
        instance: String,
        /// The number of releases that are done; their files are removed.
        done: usize,
        /// The number of releases that failed. The host tries them again.
        kept: usize,
    },
    /// The instance ended during a call. The requester got the answer to try again.
    Ended {
        /// The instance.
        instance: String,
        /// One line.
        error: String,
    },
    /// The instance could not be built or rebuilt.
    Down {
        /// The instance.
        instance: String,
        /// One line.
        error: String,
        /// When the host tries again. `None` if it has given up.
        again_in_ms: Option<u64>,
    },
    /// The store lost writes before they were durable. Answers that waited for them became errors, and the host
    /// rebuilds the instance from what is durable.
    RolledBack {
        /// The instance.
        instance: String,
        /// The store's error.
        error: String,
        /// The last valid entry of the journal.
        stands: u64,
    },
}

/// How many addresses there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Interfaces.
    pub enis: usize,
    /// Their addresses.
    pub addresses: usize,
    /// How many of these are assigned to pods.
    pub assigned: usize,
    /// Allocations whose address is on no interface.
    pub held: usize,
    /// Addresses of interfaces that a pod gets at once: no pod has them, and they do not rest. 0 in the answer of an
    /// earlier host.
    #[serde(default)]
    pub free: usize,
    /// Addresses of interfaces that rest after a pod gave them back.
    #[serde(default)]
    pub resting: usize,
}

/// `2 interfaces, 10 addresses: 3 assigned, 0 held`.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let enis = counted(self.enis, "interface", "interfaces");
        let addresses = counted(self.addresses, "address", "addresses");
        write!(f, "{enis}, {addresses}: {} assigned, {} held", self.assigned, self.held)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pods {
    is_read: bool,
    is_listening: bool,
    /// Without what [`Pods::show`] adds.
    shown: PodsShown,
    /// Why the list of interfaces cannot be read. `None` if it can.
    pub(super) interfaces: Option<String>,
    again_at_ms: Option<u64>,
}

impl Pods {
    pub(super) fn take(&mut self, event: &Event, now_ms: u64) {
        let shown = &mut self.shown;
        match event {
            Event::Read { stats, .. } => {
                (self.is_read, self.again_at_ms) = (true, None);
                shown.stats = *stats;
                (shown.error, shown.since_ms) = (None, now_ms);
            }
            Event::Counted { stats, problems, .. } => {
                shown.stats = *stats;
                shown.problems.clone_from(problems);
            }
            Event::Listening { .. } => self.is_listening = true,
            Event::ReadingFailed { error, again_in_ms, .. } | Event::Down { error, again_in_ms, .. } => {
                self.is_read = false;
                self.again_at_ms = again_in_ms.map(|ms| now_ms.saturating_add(ms));
                (shown.error, shown.since_ms) = (Some(error.clone()), now_ms);
            }
            Event::Ended { error, .. } | Event::RolledBack { error, .. } => {
                (shown.error, shown.since_ms) = (Some(error.clone()), now_ms);
            }
            Event::Released { .. } | Event::Spool { .. } => {}
        }
    }

    /// Why pods get no address now.
    pub(super) fn why_not(&self) -> Option<String> {
        if !self.is_read {
            let error = self.shown.error.clone();
            return Some(error.unwrap_or_else(|| "the store is not read yet".to_owned()));
        }
        (!self.is_listening).then(|| "the socket is not there yet".to_owned())
    }

    pub(super) fn show(&self, instance: &str, now_ms: u64) -> PodsShown {
        PodsShown {
            instance: instance.to_owned(),
            serving: self.why_not().is_none(),
            next_try_in_ms: self.again_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms)),
            problems: self.interfaces.iter().chain(&self.shown.problems).cloned().collect(),
            ..self.shown.clone()
        }
    }
}
