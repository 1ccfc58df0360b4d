//! What is compared with what, and the calls that a shadow observes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use trueup_capabilities::metrics::Registry;
use trueup_engine::Digest;
use trueup_instance::Instances;
use trueup_instance::replay::Compare;
use trueup_journal::Entry;

/// The versions to compare, and where the results go.
pub struct Setup {
    /// The version whose calls are observed. After a swap another one is active, and the owner must stop this shadow.
    pub active: Instances,
    /// The version that decides beside it.
    pub candidate: Instances,
    /// What is compared.
    pub compare: Compare,
    /// The folder for differences. Created if it is missing. Keeps what an earlier shadow left there
    /// while it is among the newest.
    pub folder: PathBuf,
    /// Counts calls by verdict: `trueup_shadow_calls_total`.
    pub metrics: Arc<Registry>,
}

/// One call of the active guest, or several in order: the entries of the tape's tap after it.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The instance's key.
    pub key: String,
    /// The guest that was called. Calls of another version than the active one are not compared.
    pub digest: Digest,
    /// The active instance's snapshot before these entries, if [`super::Shadow::interest`] asked for it.
    pub state: Option<String>,
    /// The active instance's settings in `init`, if its state is given: an adapter may give each key its own
    /// settings. `None` if they are unknown; the shadow then assumes the configured ones.
    pub settings: Option<Value>,
    /// The timers that waited before these entries, if the state is given: when each is due, and its id. Includes one
    /// that these entries fire.
    pub timers: Vec<(u64, u64)>,
    /// From `Tape::take_entries`. Empty if the tap dropped a call that was too long: it counts as skipped.
    pub entries: Vec<Entry>,
    /// How long the active guest took in wall-clock time. The candidate gets [`super::CPU_MORE_MAX`] more, up to its
    /// `cpu_ms`.
    pub took: Duration,
}
