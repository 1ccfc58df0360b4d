//! What a run reports to its caller.

use std::path::PathBuf;

use serde::{Serialize, Serializer};
use serde_json::Value;

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
    /// What came of a key.
    #[serde(untagged)]
    Settled(Settled),
}

/// What came of a key: it is in its desired state, on the way to it, or gone. Its kind of work words it, for people and
/// for programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The key, such as `namespace/name`.
    pub key: String,
    /// `true`, `started` if what was begun has still to end, or `gone` if nothing of it is left.
    pub state: &'static str,
    /// What this job did.
    pub did: String,
    /// The name of the event in JSON, and its members there.
    pub json: (&'static str, Value),
}

impl Serialize for Settled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, members) = &self.json;
        serializer.collect_map([(name, members)])
    }
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
