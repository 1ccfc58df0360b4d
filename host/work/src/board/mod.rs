//! The board: what this host knows about itself. The loops write to it as things happen, each time in a few steps
//! however many keys there are. The admin address and the control socket read it.
//!
//! The host makes no decision based on the board. The board does not outlive the process, and filling it calls no
//! guest.
//!
//! ```text
//! services, NEGs, pod addresses, election, source -> board -> /v1/status, /v1/keys, /readyz, /metrics
//! ```

mod calls;
mod contested;
mod histogram;
mod keys;
mod loops;
mod negs;
pub mod pods;
mod shown;
mod status;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::time::Instant;
use trueup_base::clock::{Clock, SystemClock};

pub use self::calls::Calls;
pub use self::histogram::{BOUNDS, Histogram};
pub use self::keys::{Decided, Finished, GONE_MAX, KeyState, Outcome, RECENT_MAX};
pub use self::loops::{BEAT_MAX, Beating, Late};
pub use self::negs::{Migration, MigrationShown, NegAt, NegsShown, OperationAt, OperationShown};
pub use self::shown::{
    Counts, Effects, GuestShown, HostShown, KeyShown, KeysShown, Measured, MemoryShown, NodeShown, PodsShown,
    QueueShown, RefusedReload, ShadowShown, SourceShown, StandingShown, Status, Times, Total,
};

use self::contested::Contested;
use self::keys::{Keys, line_of};
use self::loops::Loops;
use self::negs::Negs;
use self::pods::Pods;

/// How many problems of a source are kept for display. Beyond these, the count is more useful than a list.
pub const PROBLEMS_MAX: usize = 100;

/// The part that this host plays among several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Standing {
    /// There is no election: the host acts.
    #[default]
    Alone,
    /// The host holds the lease and acts.
    Leading,
    /// The host waits. Another host holds the lease, or none does.
    Standby {
        /// The last known holder.
        leader: Option<String>,
    },
}

/// What does not change while a host runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The configuration file.
    pub config: PathBuf,
    /// The state folder.
    pub state_dir: PathBuf,
    /// The kind of source, such as `manifests` or `kubernetes`. `None` if this host handles no Services.
    pub source: Option<&'static str>,
    /// The instance for pod addresses. `None` if this host serves none.
    pub pods: Option<String>,
    /// Whether this host handles NEGs.
    pub negs: bool,
    /// This node, if the host renders its Services or numbers it. `None` otherwise.
    pub node: Option<String>,
}

/// The result of one look at the source.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// The number of objects of each kind.
    pub objects: &'a [(&'static str, usize)],
    /// The number of changed objects.
    pub changes: usize,
    /// Whether no unreadable input may hide an object.
    pub complete: bool,
    /// What cannot be read or is not used, one line each.
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
    /// Whether another configuration ran before in this process.
    reloaded: bool,
    refused_reload: Option<RefusedReload>,
    source: Source,
    sleeping: usize,
    keys: Keys,
    contested: Contested,
    negs: Negs,
    node: OnNode,
    pods: Pods,
}

/// What the host knows about this node.
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
    /// What Services on this node request but do not get.
    on_node: Vec<String>,
    notes: Vec<String>,
    note_count: usize,
    more: Value,
}

impl Board {
    /// An empty board. Its clock starts at the machine's time and then runs monotonically, so that pauses and durations
    /// stay correct if the machine's clock is set.
    pub fn new(facts: Facts) -> Arc<Self> {
        Self::with_clock(facts, Arc::new(SystemClock))
    }

    /// The same with the caller's clock.
    pub fn with_clock(facts: Facts, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            started_ms: clock.steady_ms(),
            facts,
            clock,
            loops: Loops::default(),
            inner: Mutex::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the Unix epoch, by [`Clock::steady_ms`] of the board's clock.
    pub fn now_ms(&self) -> u64 {
        self.clock.steady_ms()
    }

    /// The facts that do not change.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Sets the name of this host in the election.
    pub fn set_identity(&self, identity: &str) {
        identity.clone_into(&mut self.inner().identity);
    }

    /// Sets the part that this host plays in the election.
    pub fn set_standing(&self, standing: Standing) {
        let mut inner = self.inner();
        if matches!(standing, Standing::Standby { .. }) {
            // It no longer looks. Another host may change the objects.
            inner.contested = Contested::default();
        }
        inner.standing = standing;
    }

    /// The part that this host plays.
    pub fn standing(&self) -> Standing {
        self.inner().standing.clone()
    }

    /// Another configuration ran before in this process.
    pub fn reloaded(&self) {
        self.inner().reloaded = true;
    }

    /// Whether another configuration ran before in this process.
    pub fn is_reloaded(&self) -> bool {
        self.inner().reloaded
    }

    /// The host was to take another configuration, and refused.
    pub fn reload_refused(&self, refused: RefusedReload) {
        self.inner().refused_reload = Some(refused);
    }

    /// The host received the request to stop.
    pub fn stopping(&self) {
        self.inner().stopping = true;
    }

    /// Whether the host is stopping.
    pub fn is_stopping(&self) -> bool {
        self.inner().stopping
    }

    /// Sets more information about the source, as an object that is shown unchanged.
    pub fn set_source(&self, more: Value) {
        self.inner().source.more = more;
    }

    /// Starts watching a loop. It must beat at least every few seconds until the returned value is dropped.
    pub fn begin_loop(self: &Arc<Self>, name: &'static str) -> Beating {
        self.loops.begin(name);
        Beating::new(Arc::clone(self), name)
    }

    /// The loops that have not beaten for too long, by name.
    pub fn late(&self) -> Vec<Late> {
        self.loops.late(Instant::now())
    }

    /// The loops that are being watched, by name.
    pub fn beating(&self) -> Vec<&'static str> {
        self.loops.names()
    }

    /// Records a look at the source.
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

    /// Records what the Services on this node request and do not get (`problems`), and what is left out while all is
    /// well (`notes`). Of the notes, which may be many, only the first are kept.
    pub fn on_node<'n>(&self, problems: &[String], notes: impl Iterator<Item = &'n str>, note_count: usize) {
        let source = &mut self.inner().source;
        source.on_node = problems.to_vec();
        source.note_count = note_count;
        source.notes = notes.take(PROBLEMS_MAX).map(str::to_owned).collect();
    }

    /// What cannot be read of the source, one line each.
    pub fn source_problems(&self) -> Vec<String> {
        self.inner().source.problems.clone()
    }

    /// Whether the source was read at least once since the start.
    pub fn is_synced(&self) -> bool {
        self.inner().source.looks > 0
    }

    /// Sets the number of calls that sleep.
    pub fn sleeping(&self, count: usize) {
        self.inner().sleeping = count;
    }

    /// The source object of a key changed, and the key is queued. `guest` is the name in `[guests.NAME]`.
    pub fn changed(&self, guest: &str, key: &str) {
        let now_ms = self.now_ms();
        self.inner().keys.changed(&line_of(guest, key), now_ms);
    }

    /// Work on a key begins.
    pub fn began(&self, guest: &str, key: &str) {
        let now_ms = self.now_ms();
        self.inner().keys.began(&line_of(guest, key), now_ms);
    }

    /// Work on a key ended.
    pub fn finished(&self, guest: &str, key: &str, finished: Finished) {
        let now_ms = self.now_ms();
        self.inner().keys.finished(&line_of(guest, key), finished, now_ms);
    }

    /// A key is invalid: it is not reconciled until it changes.
    pub fn refused(&self, guest: &str, key: &str, error: &str) {
        let now_ms = self.now_ms();
        let line = line_of(guest, key);
        self.inner()
            .keys
            .stands(&line, KeyState::Failed, Some((error, 0)), now_ms);
    }

    /// A key is set aside: it is not reconciled until it or the guest changes.
    pub fn set_aside(&self, guest: &str, key: &str, error: &str, failures: u32) {
        let now_ms = self.now_ms();
        let (line, why) = (line_of(guest, key), Some((error, failures)));
        self.inner().keys.stands(&line, KeyState::SetAside, why, now_ms);
    }

    /// The objects of a key are kept, since an unreadable input may hide the key.
    pub fn held(&self, guest: &str, key: &str) {
        let now_ms = self.now_ms();
        let line = line_of(guest, key);
        self.inner().keys.stands(&line, KeyState::Held, None, now_ms);
    }

    /// Nothing is desired for a key, and no work on it is left, although it may have been queued.
    pub fn gone(&self, guest: &str, key: &str) {
        let now_ms = self.now_ms();
        let line = line_of(guest, key);
        let mut inner = self.inner();
        inner.contested.resynced(&line, false);
        inner.keys.gone(&line, now_ms);
    }

    /// A resync of a key ended. `corrected`: it changed objects, although they were as desired since the last success
    /// and nothing else had changed. Returns how many resyncs in a row did.
    pub fn resynced(&self, guest: &str, key: &str, corrected: bool) -> u32 {
        self.inner().contested.resynced(&line_of(guest, key), corrected)
    }

    /// What a job observed about the NEGs of a key.
    pub fn neg(&self, key: &str, at: NegAt) {
        let now_ms = self.now_ms();
        self.inner().negs.at(now_ms, key, at);
    }

    /// A key has no endpoints in any NEG.
    pub fn forget_neg(&self, key: &str) {
        self.inner().negs.forget(key);
    }

    /// Sets the number of this node, or clears it.
    pub fn numbered(&self, number: Option<u32>) {
        self.inner().node.number = number;
    }

    /// Sets the number of nodes that have a number.
    pub fn knows_nodes(&self, nodes: usize) {
        self.inner().node.nodes = nodes;
    }

    /// Sets the number of Services that each renderer should have.
    pub fn renders(&self, services: usize) {
        self.inner().node.services = services;
    }

    /// Sets the node records that cannot be read now, one line each.
    pub fn node_problems(&self, problems: Vec<String>) {
        self.inner().node.problems = problems;
    }

    /// Records an event about pod addresses.
    pub fn told_of_pods(&self, event: &pods::Event) {
        let now_ms = self.now_ms();
        self.inner().pods.told(event, now_ms);
    }

    /// Sets why the list of interfaces cannot be read. `None` if it can.
    pub fn interfaces(&self, problem: Option<String>) {
        self.inner().pods.interfaces(problem);
    }

    /// Why pods get no address now. `None` if they do, or if this host serves none.
    pub fn pods_wait(&self) -> Option<String> {
        self.facts.pods.as_ref()?;
        self.inner().pods.why_not()
    }
}
