//! The control socket of a running host, which the operator's commands use: HTTP and JSON over a unix socket in the
//! state folder, for the host's user and root only.
//!
//! ```text
//! trueup guest swap ... -> client -> STATE/control.sock -> server -> swap::Manager
//! ```

mod client;
mod server;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trueup_capabilities::holdings::Waiting;
use trueup_work::gate::Mode;

pub use self::client::Client;
pub(crate) use self::server::serve;

/// The socket's name in the state folder.
pub const SOCKET: &str = "control.sock";

/// The socket of a state folder's host.
pub fn socket(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET)
}

/// The body of `POST /v1/guests/NAME/swap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// The reference of the candidate. Files must have an absolute path.
    #[serde(rename = "use")]
    pub reference: String,
    /// Replaces the gate of the configuration. Absent: use that gate.
    pub gate: Option<Mode>,
    /// Only runs the checks. Absent: no.
    #[serde(default)]
    pub dry_run: bool,
    /// The candidate starts without the state of the active version. Absent: no.
    #[serde(default)]
    pub afresh: bool,
}

/// The body of `POST /v1/guests/NAME/rollback`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The revision to return to. Absent: the previous version.
    pub to: Option<u64>,
}

/// The body of `POST /v1/guests/NAME/shadow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartShadow {
    /// The reference of the candidate. Files must have an absolute path.
    #[serde(rename = "use")]
    pub reference: String,
    /// Compares every question. Absent: only if the configuration's gate is `strict`.
    #[serde(default)]
    pub strict: bool,
    /// The candidate starts without the state of the active version. Absent: no.
    #[serde(default)]
    pub afresh: bool,
}

/// The body of `POST /v1/guests/NAME/shadow/promote`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// Promotes after this many consecutive identical calls. Absent: now.
    pub after: Option<u64>,
}

/// The body of `POST /v1/approve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// Approves what waits for this guest. Absent: for every guest.
    pub guest: Option<String>,
}

/// One entry of the answer: something that waited and now continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    /// Its guest.
    pub guest: String,
    /// What waited.
    #[serde(flatten)]
    pub waiting: Waiting,
}

/// The body of `POST /v1/reconcile`. The answer is the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconcile {
    /// The key.
    pub key: String,
    /// Its guest. Absent: the only guest that has a key of that name.
    pub guest: Option<String>,
}

/// The body of `POST /v1/negs/error-state`, and of its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorState {
    /// The key.
    pub key: String,
    /// Whether the guest is to treat the key as being in its error state.
    pub on: bool,
}
