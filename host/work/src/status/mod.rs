//! The status of this host. The loops write to it as things happen, each time in a few steps however many keys there
//! are. The admin address and the control socket read it.
//!
//! The host makes no decision based on it. It does not outlive the process, and filling it calls no guest.
//!
//! ```text
//! services, NEGs, pod addresses, election, source -> HostStatus -> /v1/status, /v1/keys, /readyz, /metrics
//! ```

mod calls;
mod keys;
mod negs;
pub mod pods;
mod shown;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use trueup_base::clock::{Clock, SystemClock};
use trueup_election::Status as Election;

pub use self::calls::{BOUNDS, Calls, Histogram};
pub use self::keys::{Failing, Finished, GONE_MAX, KeyState, Outcome, RECENT_MAX};
pub use self::negs::{Migration, MigrationShown, NegAt, NegsShown, OperationShown};
pub use self::shown::{
    Counts, GuestShown, HostShown, KeyShown, KeysShown, Measured, MemoryShown, NodeShown, PodsShown, QueueShown,
    RefusedReload, Role, ShadowShown, SourceShown, Status, Times, Total,
};

use self::keys::{Keys, line_of};
use self::negs::Negs;
use self::pods::Pods;

/// How many problems of a source are kept for display. Beyond these, the count is more useful than a list.
pub const PROBLEMS_MAX: usize = 100;

/// How many keys in trouble a [`Status`] contains. `/v1/keys?state=failed` has all of them.
const IN_TROUBLE_MAX: usize = 100;

/// A loop that has not beaten for this long is stuck. Loops beat every second. Their slowest turn reads a source of
/// 100,000 objects, which takes a second or two on a busy machine.
pub const BEAT_MAX: Duration = Duration::from_secs(30);

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

/// See the module.
pub struct HostStatus {
    clock: Arc<dyn Clock>,
    facts: Facts,
    /// When each loop beat last, by name.
    loops: Mutex<BTreeMap<&'static str, Instant>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    host: HostShown,
    source: SourceShown,
    /// What Services on this node request but do not get.
    on_node: Vec<String>,
    sleeping: usize,
    keys: Keys,
    /// Guests that do not act on this host now, because another host leads.
    resting: BTreeSet<String>,
    negs: Negs,
    node: NodeShown,
    pods: Pods,
}

impl HostStatus {
    /// An empty status. Its clock starts at the machine's time and then runs monotonically, so that pauses and
    /// durations stay correct if the machine's clock is set.
    pub fn new(facts: Facts) -> Arc<Self> {
        Self::with_clock(facts, Arc::new(SystemClock))
    }

    /// The same with the caller's clock.
    pub fn with_clock(facts: Facts, clock: Arc<dyn Clock>) -> Arc<Self> {
        let inner = Inner {
            host: HostShown {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                config: facts.config.display().to_string(),
                state_dir: facts.state_dir.display().to_string(),
                started_ms: clock.steady_ms(),
                ..HostShown::default()
            },
            ..Inner::default()
        };
        Arc::new(Self {
            facts,
            clock,
            loops: Mutex::default(),
            inner: Mutex::new(inner),
        })
    }

    /// Milliseconds since the Unix epoch, by [`Clock::steady_ms`] of its clock.
    pub fn now_ms(&self) -> u64 {
        self.clock.steady_ms()
    }

    /// The facts that do not change.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Sets what this host knows of the election.
    pub fn set_election(&self, election: Election) {
        let mut inner = self.inner.lock();
        inner.host.role = Role::Leading;
        inner.host.leader = None;
        inner.host.identity.clone_from(&election.identity);
        if !election.leading {
            inner.host.role = Role::Standby;
            // It no longer looks. Another host may change the objects.
            inner.keys.forget_corrections();
            // A host that lost the lease may still be the last holder. If the Lease can't be read, another host may
            // hold it.
            let holder = election.holder.clone().filter(|_| election.error.is_none());
            inner.host.leader = holder.filter(|holder| *holder != election.identity);
        }
        inner.host.election = Some(election);
    }

    /// The part that this host plays, and the holder of the lease if another host holds it.
    pub fn role(&self) -> (Role, Option<String>) {
        let host = &self.inner.lock().host;
        (host.role, host.leader.clone())
    }

    /// Another configuration ran before in this process, since `started_ms`. `failing`: as [`HostStatus::failing`] said
    /// at its end.
    pub fn reloaded(&self, started_ms: u64, failing: Failing) {
        let mut inner = self.inner.lock();
        for (line, since_ms) in failing {
            inner.keys.failed_before(line, since_ms);
        }
        let host = &mut inner.host;
        host.reloaded_ms = Some(std::mem::replace(&mut host.started_ms, started_ms));
    }

    /// An earlier process set a key aside, at `since_ms`.
    pub fn failed_before(&self, guest: &str, key: &str, since_ms: u64) {
        self.inner.lock().keys.failed_before(line_of(guest, key), since_ms);
    }

    /// Since when keys fail or are set aside.
    pub fn failing(&self) -> Failing {
        self.inner.lock().keys.failing()
    }

    /// Whether another configuration ran before in this process.
    pub fn is_reloaded(&self) -> bool {
        self.inner.lock().host.reloaded_ms.is_some()
    }

    /// The host was to take another configuration, and refused.
    pub fn reload_refused(&self, refused: RefusedReload) {
        self.inner.lock().host.refused_reload = Some(refused);
    }

    /// The host received the request to stop.
    pub fn stopping(&self) {
        self.inner.lock().host.stopping = true;
    }

    /// Whether the host is stopping.
    pub fn is_stopping(&self) -> bool {
        self.inner.lock().host.stopping
    }

    /// Sets more information about the source, as an object that is shown unchanged.
    pub fn set_source(&self, more: Value) {
        self.inner.lock().source.more = more;
    }

    /// Records a look at the source: the number of objects of each kind, the number of changed objects, whether no
    /// unreadable input may hide an object, and what cannot be read or is not used, one line each.
    pub fn looked(&self, objects: &[(&'static str, usize)], changes: usize, complete: bool, problems: &[String]) {
        let source = &mut self.inner.lock().source;
        source.synced = true;
        let objects = objects.iter();
        source.objects = objects.map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
        source.complete = complete;
        source.changes = source.changes.saturating_add(changes as u64);
        if changes > 0 {
            source.changed_ms = Some(self.now_ms());
        }
        source.problem_count = problems.len();
        source.problems = problems.iter().take(PROBLEMS_MAX).cloned().collect();
    }

    /// Records what the Services on this node request and do not get (`problems`), and what is left out while all is
    /// well (`notes`). Of the notes, which may be many, only the first are kept.
    pub fn on_node<'n>(&self, problems: &[String], notes: impl Iterator<Item = &'n str>, note_count: usize) {
        let mut inner = self.inner.lock();
        inner.on_node = problems.to_vec();
        inner.source.note_count = note_count;
        inner.source.notes = notes.take(PROBLEMS_MAX).map(str::to_owned).collect();
    }

    /// Whether the source was read at least once since the start.
    pub fn is_synced(&self) -> bool {
        self.inner.lock().source.synced
    }

    /// Sets the number of calls that sleep.
    pub fn sleeping(&self, count: usize) {
        self.inner.lock().sleeping = count;
    }

    /// The source object of a key changed, and the key is queued. `guest` is the name in `[guests.NAME]`.
    pub fn changed(&self, guest: &str, key: &str) {
        self.of_key(guest, key, Keys::changed);
    }

    fn of_key(&self, guest: &str, key: &str, step: impl FnOnce(&mut Keys, &str, u64)) {
        step(&mut self.inner.lock().keys, &line_of(guest, key), self.now_ms());
    }

    /// Work on a key begins.
    pub fn began(&self, guest: &str, key: &str) {
        self.of_key(guest, key, Keys::began);
    }

    /// Work on a key ended.
    pub fn finished(&self, guest: &str, key: &str, finished: Finished) {
        let now_ms = self.now_ms();
        let mut inner = self.inner.lock();
        inner.keys.finished(&line_of(guest, key), finished, now_ms);
        if inner.resting.contains(guest) {
            inner.keys.rest(guest, now_ms);
        }
    }

    /// Sets whether a guest acts on this host now: while another host leads, it does not.
    pub fn set_acting(&self, guest: &str, acts: bool) {
        let mut inner = self.inner.lock();
        if acts {
            inner.resting.remove(guest);
        } else {
            inner.resting.insert(guest.to_owned());
            inner.keys.rest(guest, self.now_ms());
        }
    }

    /// Whether a guest acts on this host now.
    pub fn acts(&self, guest: &str) -> bool {
        !self.inner.lock().resting.contains(guest)
    }

    /// A key is invalid: it is not reconciled until it changes.
    pub fn refused(&self, guest: &str, key: &str, error: &str) {
        self.set_state(guest, key, KeyState::Failed, Some((error, 0)));
    }

    /// A key is set aside: it is not reconciled until it or the guest changes.
    pub fn set_aside(&self, guest: &str, key: &str, error: &str, failures: u32) {
        self.set_state(guest, key, KeyState::SetAside, Some((error, failures)));
    }

    /// The objects of a key are kept, since an unreadable input may hide the key.
    pub fn held(&self, guest: &str, key: &str) {
        self.set_state(guest, key, KeyState::Held, None);
    }

    fn set_state(&self, guest: &str, key: &str, state: KeyState, why: Option<(&str, u32)>) {
        self.of_key(guest, key, |keys, line, now_ms| {
            keys.set_state(line, state, why, now_ms)
        });
    }

    /// Nothing is desired for a key, and no work on it is left, although it may have been queued.
    pub fn gone(&self, guest: &str, key: &str) {
        self.resynced(guest, key, false);
        self.of_key(guest, key, Keys::gone);
    }

    /// A resync of a key ended. `corrected`: it changed objects, although they were as desired since the last success
    /// and nothing else had changed. Returns how many resyncs in a row did.
    pub fn resynced(&self, guest: &str, key: &str, corrected: bool) -> u32 {
        self.inner.lock().keys.resynced(&line_of(guest, key), corrected)
    }

    /// What a job observed about the NEGs of a key.
    pub fn neg(&self, key: &str, at: NegAt) {
        self.inner.lock().negs.at(key, at);
    }

    /// Changes what is shown of this node.
    pub fn node(&self, change: impl FnOnce(&mut NodeShown)) {
        change(&mut self.inner.lock().node);
    }

    /// Sets the node records that cannot be read now, one line each.
    pub fn node_problems(&self, problems: Vec<String>) {
        let node = &mut self.inner.lock().node;
        node.problem_count = problems.len();
        node.problems = problems;
        node.problems.truncate(PROBLEMS_MAX);
    }

    /// Records an event about pod addresses.
    pub fn pods_event(&self, event: &pods::Event) {
        self.inner.lock().pods.take(event, self.now_ms());
    }

    /// Sets why the list of interfaces cannot be read. `None` if it can.
    pub fn interfaces(&self, problem: Option<String>) {
        self.inner.lock().pods.interfaces = problem;
    }

    /// Why pods get no address now. `None` if they do, or if this host serves none.
    pub fn pods_wait(&self) -> Option<String> {
        self.facts.pods.as_ref()?;
        self.inner.lock().pods.why_not()
    }

    /// Statistics for each guest that has or had a key, by name.
    pub fn measured(&self) -> BTreeMap<String, Measured> {
        self.inner.lock().keys.by_guest()
    }

    /// The number of keys of a guest that are set aside.
    pub fn set_aside_of(&self, guest: &str) -> usize {
        self.measured().get(guest).map_or(0, |measured| measured.set_aside)
    }

    /// The document of `/v1/status`. The caller adds the state of the file, guests, memory and problems.
    pub fn status(&self) -> Status {
        let now_ms = self.now_ms();
        let facts = self.facts();
        let inner = self.inner.lock();
        let keys = &inner.keys;
        Status {
            host: HostShown {
                now_ms,
                ..inner.host.clone()
            },
            source: facts.source.map(|kind| {
                let source = &inner.source;
                let problems = source.problems.iter().chain(&inner.on_node);
                SourceShown {
                    kind: kind.to_owned(),
                    problems: problems.take(PROBLEMS_MAX).cloned().collect(),
                    problem_count: source.problem_count + inner.on_node.len(),
                    ..source.clone()
                }
            }),
            queue: facts.source.map(|_| keys.queue(inner.sleeping, &inner.resting, now_ms)),
            keys: keys.counts(),
            in_trouble: keys.list("", IN_TROUBLE_MAX, now_ms, KeyShown::is_in_trouble),
            in_trouble_count: keys.in_trouble_count(),
            contested: keys.contested().take(IN_TROUBLE_MAX).map(str::to_owned).collect(),
            contested_count: keys.contested().count(),
            total: total(keys.by_guest().values()),
            guests: Vec::new(),
            negs: facts.negs.then(|| inner.negs.show()),
            node: facts.node.as_ref().map(|name| NodeShown {
                name: name.clone(),
                ..inner.node.clone()
            }),
            pods: facts.pods.as_ref().map(|instance| inner.pods.show(instance, now_ms)),
            memory: MemoryShown::default(),
            problems: Vec::new(),
        }
    }

    /// Keys after `after`, in order of `GUEST/KEY`, in one state or in any, at most `max`.
    pub fn keys(&self, state: Option<KeyState>, after: &str, max: usize) -> KeysShown {
        self.page(after, max, |key| state.is_none_or(|state| key.state == state))
    }

    /// The same for keys with an error, in any state.
    pub fn keys_in_trouble(&self, after: &str, max: usize) -> KeysShown {
        self.page(after, max, KeyShown::is_in_trouble)
    }

    /// At most `max` of the keys after `after` that `fits` accepts.
    fn page(&self, after: &str, max: usize, fits: impl Fn(&KeyShown) -> bool) -> KeysShown {
        let keys = &self.inner.lock().keys;
        let mut keys = keys.list(after, max.saturating_add(1), self.now_ms(), fits);
        let has_more = keys.len() > max;
        keys.truncate(max);
        let next = keys.last().filter(|_| has_more).map(|it| line_of(&it.guest, &it.key));
        KeysShown { keys, next }
    }

    /// One key of a guest. `None` if it is unknown.
    pub fn key(&self, guest: &str, key: &str) -> Option<KeyShown> {
        self.inner.lock().keys.one(&line_of(guest, key), self.now_ms())
    }

    /// The keys with that name, one for each guest that has one, by guest.
    pub fn keys_named(&self, key: &str) -> Vec<KeyShown> {
        let inner = self.inner.lock();
        let one = |guest: String| inner.keys.one(&line_of(&guest, key), self.now_ms());
        inner.keys.by_guest().into_keys().filter_map(one).collect()
    }

    /// Starts watching a loop. It must beat at least every few seconds until the returned value is dropped.
    pub fn begin_loop(self: &Arc<Self>, name: &'static str) -> Beating {
        let host_status = Arc::clone(self);
        let beating = Beating { host_status, name };
        beating.beat();
        beating
    }

    /// The loops that have not beaten for too long, by name, each with the time since its last beat.
    pub fn late(&self) -> Vec<(&'static str, Duration)> {
        self.late_at(Instant::now())
    }

    fn late_at(&self, now: Instant) -> Vec<(&'static str, Duration)> {
        let loops = self.loops.lock();
        let silent = loops
            .iter()
            .map(|(name, beat)| (*name, now.saturating_duration_since(*beat)));
        silent.filter(|(_, silent)| *silent > BEAT_MAX).collect()
    }

    /// The loops that are being watched, by name.
    pub fn beating(&self) -> Vec<&'static str> {
        self.loops.lock().keys().copied().collect()
    }
}

/// The total over all guests.
fn total<'a>(measured: impl Iterator<Item = &'a Measured>) -> Total {
    let mut total = Total::default();
    let add = |times: &mut Times, histogram: &Histogram| {
        times.count += histogram.count;
        times.seconds += histogram.sum;
    };
    for measured in measured {
        add(&mut total.took, &measured.took);
        add(&mut total.change_to_effect, &measured.to_effect);
        total.effects += measured.effects;
    }
    total.decisions = total.took.count;
    total
}

/// A loop that is watched until this is dropped: a loop that ends normally is not stuck. A loop that panics stays
/// registered, and is late after [`BEAT_MAX`].
pub struct Beating {
    host_status: Arc<HostStatus>,
    name: &'static str,
}

impl Beating {
    /// Records that the loop is alive.
    pub fn beat(&self) {
        self.host_status.loops.lock().insert(self.name, Instant::now());
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.host_status.loops.lock().remove(self.name);
        }
    }
}
