//! What a run reports to its caller.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::lifecycle::quarantine::SetAside;
use crate::swap;
use crate::worlds::{ipam, node};

/// What a run reports to its caller.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A manifest can't be read or is not used, or the list of network interfaces can't be read any more.
    Problem(String),
    /// No manifest names the key, but its objects are kept: one that can't be read may name it.
    Held {
        /// `namespace/name`.
        key: String,
        /// What can't be read, such as `a manifest can't be read`.
        why: &'static str,
    },
    /// A key is in its desired state, or is gone.
    True {
        /// `namespace/name`.
        key: String,
        /// The Service was deleted, and its objects are gone too.
        gone: bool,
        /// Objects created by this job.
        created: u64,
        /// Objects destroyed by this job.
        destroyed: u64,
        /// The addresses and ports in service.
        in_service: Vec<(String, Vec<u16>)>,
    },
    /// The NEGs of a key were compared with the endpoints that they should have.
    Synced {
        /// `namespace/name/port`.
        key: String,
        /// The key is no longer desired, and nothing of it is left.
        gone: bool,
        /// Endpoints that are being attached from now on.
        attaching: u64,
        /// Endpoints that are being detached from now on.
        detaching: u64,
    },
    /// A key of another kind of work is in its desired state, or is gone.
    Settled {
        /// The key.
        key: String,
        /// The key is no longer desired, and nothing of it is left.
        gone: bool,
        /// What this job did, such as `written`, and how often.
        did: BTreeMap<&'static str, u64>,
    },
    /// A key failed.
    Failed {
        /// `namespace/name`.
        key: String,
        /// One line.
        error: String,
        /// When the host tries it again. `None` if it has given up.
        again_in_ms: Option<u64>,
    },
    /// An input is set aside. What is applied stays until the input or the guest changes.
    Quarantined {
        /// `namespace/name`.
        key: String,
        /// One line.
        error: String,
        /// How often the guest failed with it.
        failures: u32,
        /// The folder of its recording.
        journal: PathBuf,
    },
    /// Another configuration is to replace the one before.
    Reloaded {
        /// The file from which it was read.
        file: PathBuf,
    },
    /// Another version of a guest became active, or should have.
    Guest(swap::Event),
    /// An event about pod addresses.
    Ipam(ipam::Event),
    /// An event about this node's number, or the Services on it.
    Node(node::Event),
}

impl From<&SetAside> for Event {
    fn from(entry: &SetAside) -> Self {
        Self::Quarantined {
            key: entry.instance.clone(),
            error: entry.error.clone(),
            failures: entry.failures,
            journal: entry.journal.clone(),
        }
    }
}
