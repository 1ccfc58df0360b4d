//! The control socket of a host that runs: what an operator's commands ask of it. HTTP and JSON over a unix socket in the
//! state folder, for the host's user and root alone.
//!
//! ```text
//! trueup guest swap ... -> client -> STATE/control.sock -> server -> swap::Manager
//! ```

mod client;
mod server;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trueup_capabilities::holdings::Waiting;

pub use self::client::{Client, ClientError};
pub(crate) use self::server::{listen, serve};
use crate::gate::Mode;

/// The socket's name in the state folder.
pub const SOCKET: &str = "control.sock";

/// Where the host of a state folder listens.
pub fn socket(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET)
}

/// The body of `POST /v1/guests/NAME/swap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// What names the candidate; files by their whole path.
    #[serde(rename = "use")]
    pub reference: String,
    /// In place of the configuration's gate. Absent: that.
    #[serde(default)]
    pub gate: Option<Mode>,
    /// Only tried. Absent: no.
    #[serde(default)]
    pub dry_run: bool,
    /// It begins without the state of the active version. Absent: no.
    #[serde(default)]
    pub afresh: bool,
}

/// The body of `POST /v1/guests/NAME/rollback`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The revision to go back to. Absent: the version before.
    #[serde(default)]
    pub to: Option<u64>,
}

/// The body of `POST /v1/guests/NAME/shadow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartShadow {
    /// What names the candidate; files by their whole path.
    #[serde(rename = "use")]
    pub reference: String,
    /// Every question is compared. Absent: where the configuration's gate is `strict`.
    #[serde(default)]
    pub strict: bool,
    /// It begins without the state of the active version. Absent: no.
    #[serde(default)]
    pub afresh: bool,
}

/// The body of `POST /v1/guests/NAME/shadow/promote`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// When so many calls in a row came out the same. Absent: now.
    #[serde(default)]
    pub after: Option<u64>,
}

/// The body of `POST /v1/approve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// What waits of this guest. Absent: of every guest.
    #[serde(default)]
    pub guest: Option<String>,
}

/// One entry of the answer: what waited, and goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    /// Whose it is.
    pub guest: String,
    /// What it is.
    #[serde(flatten)]
    pub waiting: Waiting,
}

/// The body of `POST /v1/negs/error-state`, and of its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorState {
    /// `namespace/name/port`.
    pub key: String,
    /// Whether its guest is to take it for in its error state from here on.
    pub on: bool,
}

/// The body of every answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// One line.
    pub error: String,
}
