//! The board: what this host knows of itself now. The loops write on it as things happen, each time in a few steps however
//! many keys there are; the admin address and the control socket read it.
//!
//! Nothing is decided by what stands here, nothing of it outlives the process, and no guest is asked for it.
//!
//! ```text
//! services, NEGs, pod addresses, election, source -> board -> /v1/status, /v1/keys, /readyz, /metrics
//! ```

mod calls;
mod histogram;
mod keys;
mod loops;
mod negs;
mod pods;
mod shown;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::time::Instant;
use trueup_capabilities::Answer;
use trueup_capabilities::clock::{Clock, SystemClock};

pub use self::calls::Calls;
pub use self::histogram::{BOUNDS, Histogram};
pub use self::keys::{Decided, Finished, GONE_MAX, KeyState, Outcome, RECENT_MAX};
pub use self::loops::{BEAT_MAX, Beating, Late};
pub use self::negs::{MigrationShown, NegsShown, OperationShown};
pub(crate) use self::negs::{NegAt, OperationAt};
pub(crate) use self::shown::Measured;
pub use self::shown::{
    Counts, Effects, GuestShown, HostShown, KeyShown, KeysShown, MemoryShown, NodeShown, PodsShown, QueueShown,
    ShadowShown, SourceShown, StandingShown, Status, Times, Total,
};

use self::keys::{Keys, line_of};
use self::loops::Loops;
use self::negs::Negs;
use self::pods::Pods;

/// So many problems of a source are kept to be shown: beyond these, a number says more than a list.
pub const PROBLEMS_MAX: usize = 100;

/// What an operator may do about this host's part among several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Standing {
    /// There is no election: it acts.
    #[default]
    Alone,
    /// It holds the lease: it acts.
    Leading,
    /// Another holds the lease, or nobody does: it waits.
    Standby {
        /// Who holds it, as far as is known.
        leader: Option<String>,
    },
}

/// What does not change while a host runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The file of the configuration.
    pub config: PathBuf,
    /// The state folder.
    pub state_dir: PathBuf,
    /// What kind of source there is, such as `manifests` or `kubernetes`; none: there are no Services here.
    pub source: Option<&'static str>,
    /// The instance of pod addresses; none: there are none here.
    pub pods: Option<String>,
    /// There are NEGs here.
    pub negs: bool,
    /// This node, where something becomes of Services on it or it is numbered; none: neither.
    pub node: Option<String>,
}

/// What one look at the source brought.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Objects of each kind that there are now.
    pub objects: &'a [(&'static str, usize)],
    /// Changed objects in it.
    pub changes: usize,
    /// Nothing may hide an object.
    pub complete: bool,
    /// What can't be read or is not used, one line each.
    pub problems: &'a [String],
}

/// See the module.
pub struct Board {
    clock: Arc<dyn Clock>,
    facts: Facts,
    started_ms: u64,
    loops: Loops,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    identity: String,
    standing: Standing,
    stopping: bool,
    source: Source,
    sleeping: usize,
    keys: Keys,
    negs: Negs,
    node: OnNode,
    pods: Pods,
}

/// What is known of this node.
#[derive(Default)]
struct OnNode {
    number: Option<u32>,
    nodes: usize,
    services: usize,
    problems: Vec<String>,
}

#[derive(Default)]
struct Source {
    objects: Vec<(&'static str, usize)>,
    looks: u64,
    complete: bool,
    changes: u64,
    changed_ms: Option<u64>,
    problems: Vec<String>,
    problem_count: usize,
    /// What Services on this node ask for in vain.
    on_node: Vec<String>,
    notes: Vec<String>,
    note_count: usize,
    more: Value,
}

impl Board {
    /// An empty board, on a clock that goes as the machine's did at the start, however that is set meanwhile: pauses and
    /// durations stay true.
    pub fn new(facts: Facts) -> Arc<Self> {
        Self::with_clock(facts, Arc::new(SteadyClock::new()))
    }

    /// The same on a clock of the caller's.
    pub fn with_clock(facts: Facts, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            started_ms: clock.now_ms(),
            facts,
            clock,
            loops: Loops::default(),
            inner: Mutex::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the Unix epoch, by the board's clock.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// What does not change.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The name of this host among several.
    pub fn set_identity(&self, identity: &str) {
        identity.clone_into(&mut self.inner().identity);
    }

    /// What part this host plays: for whoever takes part in the election.
    pub fn set_standing(&self, standing: Standing) {
        self.inner().standing = standing;
    }

    /// What part it plays.
    pub fn standing(&self) -> Standing {
        self.inner().standing.clone()
    }

    /// The host was told to stop.
    pub fn stopping(&self) {
        self.inner().stopping = true;
    }

    /// Whether it was.
    pub fn is_stopping(&self) -> bool {
        self.inner().stopping
    }

    /// What else there is to say of the source, as an object: shown as it is.
    pub fn set_source(&self, more: Value) {
        self.inner().source.more = more;
    }

    /// A loop begins, which beats from here on, at least every few seconds, until the answer is dropped.
    pub fn begin_loop(self: &Arc<Self>, name: &'static str) -> Beating {
        self.loops.begin(name);
        Beating::new(Arc::clone(self), name)
    }

    /// Loops that did not beat for too long, by name.
    pub fn late(&self) -> Vec<Late> {
        self.loops.late(Instant::now())
    }

    /// The loops that beat, by name.
    pub fn beating(&self) -> Vec<&'static str> {
        self.loops.names()
    }

    /// The source was looked at.
    pub fn looked(&self, look: Look<'_>) {
        let now_ms = self.now_ms();
        let source = &mut self.inner().source;
        source.looks += 1;
        source.objects.clear();
        source.objects.extend_from_slice(look.objects);
        source.complete = look.complete;
        source.changes = source.changes.saturating_add(look.changes as u64);
        if look.changes > 0 {
            source.changed_ms = Some(now_ms);
        }
        source.problem_count = look.problems.len();
        source.problems = look.problems.iter().take(PROBLEMS_MAX).cloned().collect();
    }

    /// What of the Services on this node is not as they ask for (`problems`), and what is left out while all is well (`notes`).
    /// Of the notes, which are so many, the first are kept.
    pub fn on_node<'n>(&self, problems: &[String], notes: impl Iterator<Item = &'n str>, note_count: usize) {
        let source = &mut self.inner().source;
        source.on_node = problems.to_vec();
        source.note_count = note_count;
        source.notes = notes.take(PROBLEMS_MAX).map(str::to_owned).collect();
    }

    /// The source was looked at at least once since the start.
    pub fn is_synced(&self) -> bool {
        self.inner().source.looks > 0
    }

    /// So many calls sleep now.
    pub fn sleeping(&self, count: usize) {
        self.inner().sleeping = count;
    }

    /// What a key of a guest, named as in `[guests.NAME]`, stands for changed: it waits to be worked on.
    pub fn changed(&self, guest: &str, key: &str) {
        let now_ms = self.now_ms();
        self.inner().keys.changed(&line_of(guest, key), now_ms);
    }

    /// Work on a key began.
    pub fn began(&self, guest: &str, key: &str) {
        let now_ms = self.now_ms();
        self.inner().keys.began(&line_of(guest, key), now_ms);
    }

    /// Work on a key ended.
    pub fn finished(&self, guest: &str, key: &str, finished: Finished) {
        let now_ms = self.now_ms();
        self.inner().keys.finished(&line_of(guest, key), finished, now_ms);
    }

    /// A key can't be used: nothing is done until it changes.
    pub fn refused(&self, guest: &str, key: &str, error: &str) {
        let now_ms = self.now_ms();
        let line = line_of(guest, key);
        self.inner()
            .keys
            .stands(&line, KeyState::Failed, Some((error, 0)), now_ms);
    }

    /// A key is set aside: nothing is done until it or the guest changes.
    pub fn set_aside(&self, guest: &str, key: &str, error: &str, failures: u32) {
        let now_ms = self.now_ms();
        let (line, why) = (line_of(guest, key), Some((error, failures)));
        self.inner().keys.stands(&line, KeyState::SetAside, why, now_ms);
    }

    /// What a key has is kept, since it may be hidden by what can't be read.
    pub fn held(&self, guest: &str, key: &str) {
        let now_ms = self.now_ms();
        let line = line_of(guest, key);
        self.inner().keys.stands(&line, KeyState::Held, None, now_ms);
    }

    /// What a job found out about the NEGs of a key.
    pub(crate) fn neg(&self, key: &str, at: NegAt) {
        let now_ms = self.now_ms();
        self.inner().negs.at(now_ms, key, at);
    }

    /// Nothing of a key is in any NEG.
    pub(crate) fn forget_neg(&self, key: &str) {
        self.inner().negs.forget(key);
    }

    /// This node has its number, or none any more.
    pub(crate) fn numbered(&self, number: Option<u32>) {
        self.inner().node.number = number;
    }

    /// So many nodes have a number.
    pub(crate) fn knows_nodes(&self, nodes: usize) {
        self.inner().node.nodes = nodes;
    }

    /// So many Services each renderer should have.
    pub(crate) fn renders(&self, services: usize) {
        self.inner().node.services = services;
    }

    /// The nodes' records that can't be read now, one line each.
    pub(crate) fn node_problems(&self, problems: Vec<String>) {
        self.inner().node.problems = problems;
    }

    /// Something about pod addresses.
    pub fn told_of_pods(&self, event: &crate::ipam::Event) {
        let now_ms = self.now_ms();
        self.inner().pods.told(event, now_ms);
    }

    /// Why the list of interfaces can't be read; none: it can.
    pub(crate) fn interfaces(&self, problem: Option<String>) {
        self.inner().pods.interfaces(problem);
    }

    /// Why pods get no address now; none: they do, or there are none here.
    pub fn pods_wait(&self) -> Option<String> {
        self.facts.pods.as_ref()?;
        self.inner().pods.why_not()
    }
}

/// The machine's time at the start, and what has passed since.
struct SteadyClock {
    started: Instant,
    epoch_ms: u64,
}

impl SteadyClock {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            epoch_ms: SystemClock.now_ms(),
        }
    }
}

impl Clock for SteadyClock {
    fn now_ms(&self) -> u64 {
        let passed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.epoch_ms.saturating_add(passed)
    }

    fn sleep_ms(&self, duration_ms: u64) -> Answer<'_, ()> {
        SystemClock.sleep_ms(duration_ms)
    }
}
