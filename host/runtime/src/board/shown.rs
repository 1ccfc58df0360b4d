//! What is read off the board: the documents of `/v1/status` and `/v1/keys`, as the host writes them and the commands read
//! them. Times are milliseconds since the Unix epoch, pauses milliseconds from now.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::{KeyState, Outcome, Worked, line_of};
use super::{Board, Histogram, NegsShown, PROBLEMS_MAX, Standing};
use crate::ipam::Stats;

/// How many keys stand how.
pub type Counts = BTreeMap<KeyState, usize>;

/// So many keys in trouble stand in a [`Status`]; `/v1/keys?state=failed` has all.
const IN_TROUBLE_MAX: usize = 100;

/// Everything at a glance: `/v1/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The process.
    pub host: HostShown,
    /// Where Services come from; absent: there are none here.
    pub source: Option<SourceShown>,
    /// What waits and runs; absent: there are no Services here.
    pub queue: Option<QueueShown>,
    /// How many keys stand how; those of each state, also where there are none.
    pub keys: Counts,
    /// Keys with an error, whatever they do now, in order; the first 100.
    pub in_trouble: Vec<KeyShown>,
    /// How many of these there are.
    pub in_trouble_count: usize,
    /// Since the start, of all keys.
    pub total: Total,
    /// The guests that run, by name.
    pub guests: Vec<GuestShown>,
    /// NEGs; absent: there are none here.
    #[serde(default)]
    pub negs: Option<NegsShown>,
    /// This node; absent: nothing becomes of Services on it, and nobody numbers it.
    #[serde(default)]
    pub node: Option<NodeShown>,
    /// Pod addresses; absent: there are none here.
    pub pods: Option<PodsShown>,
    /// What the process uses.
    pub memory: MemoryShown,
    /// What is not as it should be, one line each; none: the host is healthy.
    pub problems: Vec<String>,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostShown {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its name among several; empty where it has none.
    pub identity: String,
    /// The file of its configuration.
    pub config: String,
    /// Its state folder.
    pub state_dir: String,
    /// When it began.
    pub started_ms: u64,
    /// When this was said.
    pub now_ms: u64,
    /// What part it plays.
    pub standing: StandingShown,
    /// Who holds the lease, where another does.
    pub leader: Option<String>,
    /// It was told to stop.
    pub stopping: bool,
    /// Where the admin address listens, such as `http://127.0.0.1:9482`.
    pub admin: Vec<String>,
}

/// The part of a host among several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandingShown {
    /// There is no election.
    Alone,
    /// It acts.
    Leading,
    /// Another acts.
    Standby,
}

impl StandingShown {
    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Leading => "leading",
            Self::Standby => "standby",
        }
    }
}

/// Where Services come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceShown {
    /// `manifests` or `kubernetes`.
    pub kind: String,
    /// It was looked at since the start.
    pub synced: bool,
    /// Nothing hides an object: what is not there is gone.
    pub complete: bool,
    /// Objects by kind.
    pub objects: BTreeMap<String, usize>,
    /// Changed objects since the start.
    pub changes: u64,
    /// When the last one came; absent: none did.
    pub changed_ms: Option<u64>,
    /// What can't be read or is not used; the first 100.
    pub problems: Vec<String>,
    /// How many of these there are.
    pub problem_count: usize,
    /// What of it is not honoured, while all is well; the first 100.
    #[serde(default)]
    pub notes: Vec<String>,
    /// How many of these there are.
    #[serde(default)]
    pub note_count: usize,
    /// What this kind of source says of itself; null: nothing.
    #[serde(default)]
    pub more: Value,
}

/// What waits and runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueShown {
    /// Keys that could run now.
    pub ready: usize,
    /// Keys that failed and wait for their next try.
    pub delayed: usize,
    /// Keys that are worked on, those that sleep included.
    pub running: usize,
    /// Of these, so many sleep.
    pub sleeping: usize,
    /// How long the one that could run the longest has waited; 0: none does.
    pub oldest_waiting_ms: u64,
}

/// What was done since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Work on a key that ended, in whichever way.
    pub decisions: u64,
    /// Objects created and destroyed.
    pub effects: Effects,
    /// How long decisions took.
    pub took: Times,
    /// From a change until its key was true.
    pub change_to_effect: Times,
}

/// Objects created and destroyed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    /// Created.
    pub created: u64,
    /// Destroyed.
    pub destroyed: u64,
}

/// How often, and how long in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How often.
    pub count: u64,
    /// All together.
    pub seconds: f64,
}

/// A guest that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestShown {
    /// As in `[guests.NAME]`.
    pub guest: String,
    /// The name in its metadata.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    /// The number of its active revision; absent: there is none yet.
    pub revision: Option<u64>,
    /// Instances that are in a call.
    pub working: usize,
    /// Instances that are kept for their next call.
    pub resting: usize,
    /// Calls that ended.
    pub calls: u64,
    /// Of these, so many in which the guest failed.
    pub failures: u64,
    /// Linear memory of all its instances, in bytes.
    pub memory_bytes: u64,
    /// Inputs that are set aside.
    pub quarantined: usize,
    /// What is compared with it; absent: nothing is.
    pub shadow: Option<ShadowShown>,
}

/// A candidate in shadow, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowShown {
    /// Name and version.
    pub candidate: String,
    /// Calls compared.
    pub compared: u64,
    /// Calls that were the same.
    pub same: u64,
}

/// This node: its number, and the Services on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShown {
    /// As in Kubernetes.
    pub name: String,
    /// Its number; absent: it has none yet, another node has it, or nobody numbers nodes here.
    pub number: Option<u32>,
    /// Nodes with a number, as this host knows them, this one among them.
    pub nodes: usize,
    /// Services that each renderer should have. Renderers that don't are among the keys in trouble.
    pub services: usize,
    /// Records of nodes that can't be read, one line each; the first 100.
    #[serde(default)]
    pub problems: Vec<String>,
    /// How many of these there are.
    #[serde(default)]
    pub problem_count: usize,
}

/// Pod addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodsShown {
    /// The instance.
    pub instance: String,
    /// Pods get addresses.
    pub serving: bool,
    /// What went wrong last, and was not followed by a reading of the store.
    pub error: Option<String>,
    /// When that is tried again; absent: not by itself.
    pub next_try_in_ms: Option<u64>,
    /// Since when it is so.
    pub since_ms: u64,
    /// Counts, at most about a second old.
    pub stats: Stats,
    /// What is the matter though pods are served, one line each: no address is free, the list of interfaces can't be read,
    /// the container runtime does not know a holder.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// What the process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryShown {
    /// Resident memory, in bytes; 0 where the system does not say.
    pub resident_bytes: u64,
    /// The most that it was.
    pub peak_bytes: u64,
    /// Linear memory of all guests' instances.
    pub guests_bytes: u64,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyShown {
    /// Whose key it is, as in `[guests.NAME]`.
    #[serde(default)]
    pub guest: String,
    /// `namespace/name`; of NEGs `namespace/name/port`; of a guest of this node `NAME/NODE`, and the object
    /// that is left out of its input.
    pub key: String,
    /// How it stands.
    pub state: KeyState,
    /// Since when.
    pub since_ms: u64,
    /// What went wrong last; absent: nothing, or it was true since.
    pub error: Option<String>,
    /// Failures in a row.
    pub failures: u32,
    /// When it is worked on next; 0: now. Absent: not until something changes, or for a look at what is true already.
    pub next_try_in_ms: Option<u64>,
    /// Objects created since the host's start.
    pub created: u64,
    /// Objects destroyed since.
    pub destroyed: u64,
    /// What is in service.
    pub in_service: Vec<String>,
    /// Work on it that ended, since the host's start.
    pub decisions: u64,
    /// The last of these, the newest first.
    pub recent: Vec<Recent>,
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

/// Some keys: `/v1/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysShown {
    /// In order of their guests and names.
    pub keys: Vec<KeyShown>,
    /// There are more: ask with `after` for those behind this one, `GUEST/KEY`. Absent: there are not.
    pub next: Option<String>,
}

/// What work on the keys of one guest came to, for `/metrics`.
pub(crate) struct Measured {
    pub(crate) guest: String,
    pub(crate) outcomes: Vec<(Outcome, u64)>,
    pub(crate) took: Histogram,
    pub(crate) to_effect: Histogram,
    pub(crate) effects: Effects,
}

impl Board {
    /// Of each guest that has or had a key, by name.
    pub(crate) fn measured(&self) -> Vec<Measured> {
        let inner = self.inner();
        let measured = inner.keys.by_guest().iter().map(|(guest, worked)| {
            let count = |outcome| worked.outcomes.get(&outcome).copied().unwrap_or_default();
            Measured {
                guest: guest.clone(),
                outcomes: Outcome::ALL.map(|outcome| (outcome, count(outcome))).to_vec(),
                took: worked.took.clone(),
                to_effect: worked.to_effect.clone(),
                effects: worked.effects(),
            }
        });
        measured.collect()
    }

    /// How many keys of a guest are set aside.
    pub(crate) fn set_aside_of(&self, guest: &str) -> usize {
        self.inner().keys.set_aside_of(guest)
    }

    /// What stands on the board; guests, memory and whether all is well are for whoever knows of them to add.
    pub fn status(&self) -> Status {
        let now_ms = self.now_ms();
        let facts = self.facts();
        let inner = self.inner();
        let keys = &inner.keys;
        let source = facts.source.map(|kind| SourceShown {
            kind: kind.to_owned(),
            synced: inner.source.looks > 0,
            complete: inner.source.complete,
            objects: inner
                .source
                .objects
                .iter()
                .map(|(kind, count)| ((*kind).to_owned(), *count))
                .collect(),
            changes: inner.source.changes,
            changed_ms: inner.source.changed_ms,
            problems: [&inner.source.problems, &inner.source.on_node]
                .into_iter()
                .flatten()
                .take(PROBLEMS_MAX)
                .cloned()
                .collect(),
            problem_count: inner.source.problem_count + inner.source.on_node.len(),
            notes: inner.source.notes.clone(),
            note_count: inner.source.note_count,
            more: inner.source.more.clone(),
        });
        let (standing, leader) = match &inner.standing {
            Standing::Alone => (StandingShown::Alone, None),
            Standing::Leading => (StandingShown::Leading, None),
            Standing::Standby { leader } => (StandingShown::Standby, leader.clone()),
        };
        Status {
            host: HostShown {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                identity: inner.identity.clone(),
                config: facts.config.display().to_string(),
                state_dir: facts.state_dir.display().to_string(),
                started_ms: self.started_ms,
                now_ms,
                standing,
                leader,
                stopping: inner.stopping,
                admin: Vec::new(),
            },
            source,
            queue: facts.source.map(|_| keys.queue(inner.sleeping, now_ms)),
            keys: keys.counts(),
            in_trouble: keys.in_trouble("", IN_TROUBLE_MAX, now_ms),
            in_trouble_count: keys.in_trouble_count(),
            total: total(keys.by_guest().values()),
            guests: Vec::new(),
            negs: facts.negs.then(|| inner.negs.show()),
            node: facts.node.as_ref().map(|name| NodeShown {
                name: name.clone(),
                number: inner.node.number,
                nodes: inner.node.nodes,
                services: inner.node.services,
                problems: inner.node.problems.iter().take(PROBLEMS_MAX).cloned().collect(),
                problem_count: inner.node.problems.len(),
            }),
            pods: facts.pods.as_ref().map(|instance| inner.pods.show(instance, now_ms)),
            memory: MemoryShown::default(),
            problems: Vec::new(),
        }
    }

    /// Keys in order of `GUEST/KEY`, those behind `after`: at most so many, of one state or of any.
    pub fn keys(&self, state: Option<KeyState>, after: &str, max: usize) -> KeysShown {
        let now_ms = self.now_ms();
        cut(self.inner().keys.list(state, after, max.saturating_add(1), now_ms), max)
    }

    /// The same of keys with an error, whatever they do now.
    pub fn keys_in_trouble(&self, after: &str, max: usize) -> KeysShown {
        let now_ms = self.now_ms();
        cut(self.inner().keys.in_trouble(after, max.saturating_add(1), now_ms), max)
    }

    /// One key of a guest; none: it is not known.
    pub fn key(&self, guest: &str, key: &str) -> Option<KeyShown> {
        let now_ms = self.now_ms();
        self.inner().keys.one(&line_of(guest, key), now_ms)
    }

    /// The key of that text of each guest that has one, by guest.
    pub fn keys_named(&self, key: &str) -> Vec<KeyShown> {
        let now_ms = self.now_ms();
        let inner = self.inner();
        let guests = inner.keys.by_guest().keys();
        guests
            .filter_map(|guest| inner.keys.one(&line_of(guest, key), now_ms))
            .collect()
    }
}

impl Worked {
    fn effects(&self) -> Effects {
        Effects {
            created: self.created,
            destroyed: self.destroyed,
        }
    }
}

/// Of all guests.
fn total<'a>(worked: impl Iterator<Item = &'a Worked>) -> Total {
    let mut total = Total::default();
    let add = |times: &mut Times, histogram: &Histogram| {
        times.count += histogram.count;
        times.seconds += histogram.sum;
    };
    for worked in worked {
        add(&mut total.took, &worked.took);
        add(&mut total.change_to_effect, &worked.to_effect);
        total.effects.created += worked.created;
        total.effects.destroyed += worked.destroyed;
    }
    total.decisions = total.took.count;
    total
}

fn cut(mut keys: Vec<KeyShown>, max: usize) -> KeysShown {
    let has_more = keys.len() > max;
    keys.truncate(max);
    let next = keys.last().filter(|_| has_more);
    let next = next.map(|last| line_of(&last.guest, &last.key));
    KeysShown { keys, next }
}
