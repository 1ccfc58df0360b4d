//! The documents of `/v1/status` and `/v1/keys`, which the host writes and the commands read. Times are milliseconds
//! since the Unix epoch, pauses milliseconds from now.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trueup_capabilities::meter::Effects;

use super::calls::Histogram;
use super::keys::{KeyState, Outcome};
use super::negs::NegsShown;
use super::pods::Stats;

/// The number of keys in each state.
pub type Counts = BTreeMap<KeyState, usize>;

/// `/v1/status`: the overview.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The process.
    pub host: HostShown,
    /// Where Services come from. Absent if this host handles none.
    pub source: Option<SourceShown>,
    /// The work queue. Absent if this host handles no Services.
    pub queue: Option<QueueShown>,
    /// The number of keys in each state, including zeros.
    pub keys: Counts,
    /// Keys with an error, in any state, sorted; the first 100.
    pub in_trouble: Vec<KeyShown>,
    /// The number of such keys.
    pub in_trouble_count: usize,
    /// Keys, `GUEST/KEY`, whose objects another writer changes again and again; the first 100.
    #[serde(default)]
    pub contested: Vec<String>,
    /// The number of such keys.
    #[serde(default)]
    pub contested_count: usize,
    /// Totals over all keys since the start.
    pub total: Total,
    /// The running guests, by name.
    pub guests: Vec<GuestShown>,
    /// NEGs. Absent if this host handles none.
    pub negs: Option<NegsShown>,
    /// This node. Absent if the host neither renders its Services nor numbers it.
    pub node: Option<NodeShown>,
    /// Pod addresses. Absent if this host serves none.
    pub pods: Option<PodsShown>,
    /// Memory of the process.
    pub memory: MemoryShown,
    /// What an operator should look at, one line each. Empty if the host is healthy.
    pub problems: Vec<String>,
}

/// A host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostShown {
    /// Its version.
    pub version: String,
    /// The process id.
    pub pid: u32,
    /// Its name in the election. Empty if it has none.
    pub identity: String,
    /// The configuration file.
    pub config: String,
    /// Its state folder.
    pub state_dir: String,
    /// That the state folder is no longer at its path, in one line. Absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir_moved: Option<String>,
    /// When the process started.
    pub started_ms: u64,
    /// When it took its configuration. Absent if that was at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reloaded_ms: Option<u64>,
    /// When this document was written.
    pub now_ms: u64,
    /// Its part in the election.
    #[serde(rename = "standing")]
    pub role: Role,
    /// The holder of the lease, if another host holds it.
    pub leader: Option<String>,
    /// What this host knows of the election. Absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub election: Option<trueup_election::Status>,
    /// Whether the host is stopping.
    pub stopping: bool,
    /// Where the admin address listens, such as `http://127.0.0.1:9482`.
    pub admin: Vec<String>,
    /// Whether the configuration file holds another text than the one that runs.
    #[serde(default)]
    pub config_changed: bool,
    /// The last reload that was refused. Absent if none was since the last one that succeeded.
    pub refused_reload: Option<RefusedReload>,
}

/// A reload that was refused: the configuration stayed as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedReload {
    /// When.
    pub at_ms: u64,
    /// Why, one line each.
    pub reasons: Vec<String>,
}

/// The part of a host in the election.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// There is no election: the host acts.
    #[default]
    Alone,
    /// The host holds the lease and acts.
    Leading,
    /// The host waits. Another host holds the lease, or none does.
    Standby,
}

/// Where Services come from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceShown {
    /// `manifests` or `kubernetes`.
    pub kind: String,
    /// Whether it was read since the start.
    pub synced: bool,
    /// Whether nothing hides an object, so that a missing object is deleted.
    pub complete: bool,
    /// Objects by kind.
    pub objects: BTreeMap<String, usize>,
    /// Changed objects since the start.
    pub changes: u64,
    /// When the last change came. Absent if there was none.
    pub changed_ms: Option<u64>,
    /// What cannot be read or is not used; the first 100.
    pub problems: Vec<String>,
    /// The number of problems.
    pub problem_count: usize,
    /// What it requests that is not honoured while all is well; the first 100.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The number of notes.
    #[serde(default)]
    pub note_count: usize,
    /// Details of this kind of source. Null if there are none.
    #[serde(default)]
    pub more: Value,
}

/// The work queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueShown {
    /// Keys that are ready to run.
    pub ready: usize,
    /// Keys that failed and wait for their next try.
    pub delayed: usize,
    /// Keys being reconciled, including those that sleep.
    pub running: usize,
    /// The number of these that sleep.
    pub sleeping: usize,
    /// How long the oldest ready key has waited. 0 if there is none.
    pub oldest_waiting_ms: u64,
}

/// Totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Pieces of work on a key that ended, with any outcome.
    pub decisions: u64,
    /// Objects created and destroyed.
    pub effects: Effects,
    /// Durations of decisions.
    pub took: Times,
    /// Times from a change until its key was true.
    pub change_to_effect: Times,
}

/// A count, and a total duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The count.
    pub count: u64,
    /// The sum in seconds.
    pub seconds: f64,
}

/// A running guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestShown {
    /// The name in `[guests.NAME]`.
    pub guest: String,
    /// The name in its metadata.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    /// The number of its active revision. Absent if there is none yet.
    pub revision: Option<u64>,
    /// Instances in a call.
    pub working: usize,
    /// Idle instances kept for their next call.
    pub resting: usize,
    /// Calls that ended.
    pub calls: u64,
    /// The number of these in which the guest failed.
    pub failures: u64,
    /// Linear memory of all its instances, in bytes.
    pub memory_bytes: u64,
    /// Inputs that are set aside.
    pub quarantined: usize,
    /// The candidate in shadow. Absent if there is none.
    pub shadow: Option<ShadowShown>,
}

/// A candidate in shadow, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowShown {
    /// Name and version.
    pub candidate: String,
    /// Calls compared.
    pub compared: u64,
    /// Calls with the same result.
    pub same: u64,
    /// How many calls in a row must be the same before it is promoted. Absent if only a command promotes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted_after: Option<u64>,
}

/// This node: its number and its Services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShown {
    /// The name in Kubernetes.
    pub name: String,
    /// Its number. Absent if it has none yet, if another node has it, or if this host does not number nodes.
    pub number: Option<u32>,
    /// Nodes with a number that this host knows of, including this one.
    pub nodes: usize,
    /// Services that each renderer should have. A renderer that lacks some is among the keys in trouble.
    pub services: usize,
    /// What the Services wait for before any is rendered, such as `an approval`. Absent if they do not.
    pub waits_for: Option<String>,
    /// Node records that cannot be read, one line each; the first 100.
    #[serde(default)]
    pub problems: Vec<String>,
    /// The number of such records.
    #[serde(default)]
    pub problem_count: usize,
}

/// Pod addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodsShown {
    /// The instance.
    pub instance: String,
    /// Whether pods get addresses.
    pub serving: bool,
    /// The last error that no successful read of the store followed.
    pub error: Option<String>,
    /// When the host retries. Absent if it does not.
    pub next_try_in_ms: Option<u64>,
    /// When this state began; of a failed key, when its first failure since it was last in sync was.
    pub since_ms: u64,
    /// Counts, at most a second or so old.
    pub stats: Stats,
    /// Problems while pods are served, one line each: no address is free, the list of interfaces cannot be read, the
    /// container runtime does not know a holder.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// Memory of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryShown {
    /// Resident memory in bytes. 0 if the system does not report it.
    pub resident_bytes: u64,
    /// The peak of the resident memory.
    pub peak_bytes: u64,
    /// Linear memory of all instances of all guests.
    pub guests_bytes: u64,
}

/// A key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyShown {
    /// The guest that owns it, as in `[guests.NAME]`.
    #[serde(default)]
    pub guest: String,
    /// `namespace/name`; for NEGs `namespace/name/port`; for a guest of this node `NAME/NODE`.
    pub key: String,
    /// Its state.
    pub state: KeyState,
    /// When that state began.
    pub since_ms: u64,
    /// The last error. Absent if there was none, or if the key was true since then.
    pub error: Option<String>,
    /// Consecutive failures.
    pub failures: u32,
    /// When it is reconciled next; 0 means now. Absent if it waits for a change or a resync.
    pub next_try_in_ms: Option<u64>,
    /// Objects created since the host's start.
    pub created: u64,
    /// Objects destroyed since the host's start.
    pub destroyed: u64,
    /// What is in service.
    pub in_service: Vec<String>,
    /// Pieces of work on it that ended since the host's start.
    pub decisions: u64,
    /// The last of these, newest first.
    pub recent: Vec<Recent>,
}

impl KeyShown {
    /// Whether it has an error, in any state.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.error.is_some()
    }
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// When it ended.
    pub at_ms: u64,
    /// How long it took.
    pub took_ms: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Objects created.
    pub created: u32,
    /// Objects destroyed.
    pub destroyed: u32,
}

/// `/v1/keys`: a part of the keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysShown {
    /// Sorted by guest and name.
    pub keys: Vec<KeyShown>,
    /// If there are more: the last key, as `GUEST/KEY`. Pass it as `after` to get the next ones. Absent at the end.
    pub next: Option<String>,
}

/// Statistics of the work on the keys of one guest, since the start.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// How many jobs ended in each way. An outcome that did not happen may be absent.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// How long jobs took, in seconds.
    pub took: Histogram,
    /// The time from a change of the source to the end of the job that applied it, in seconds.
    pub to_effect: Histogram,
    /// What the jobs did.
    pub effects: Effects,
    /// The number of keys that are set aside.
    pub set_aside: usize,
}
