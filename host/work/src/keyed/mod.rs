//! Reconciles keys: queues what changes, runs at most one turn a key, retries, and reports what came of it.
//!
//! Only the loop decides what runs when, and it does no work itself. Turns run beside it. A turn begins while fewer
//! than `workers` calls are awake. A call that sleeps blocks no other turn.
//!
//! ```text
//! source -> look -> controller -> turn (turn.rs) --> status, events, quarantine
//! mail, timers ------^                |
//!                    +----- done -----+
//! ```
//!
//! Knows no world: a [`Reconciler`] says what a key should be and which calls a turn makes.

mod begin;
mod interrupt;
mod jobs;
pub mod key_records;
mod look;
pub mod plan;
pub mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::fence::Fence;
use trueup_base::text::counted;
use trueup_capabilities::meter::Effects;
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_controller::{Controller, Outcome};
use trueup_instance::Instances;
use trueup_sources::{Batch, Batches, Source};

pub use self::begin::{KeyedSetup, queue_settings};
use self::turn::{CutCalls, Done, Shared, Turn};
use crate::decisions::{Cause, ChangedNodes, ChangedObject, PendingCauses};
use crate::event::Event;
use crate::host_context::Supervision;
use crate::input::{From, Input, next, no_nodes, nothing_there};
use crate::keyed::interrupt::{Interrupt, Waits};
use crate::leading::Leadership;
use crate::lifecycle::active::UrgentKey;
use crate::lifecycle::failure::{self, End};
use crate::object_counts::ObjectCounts;
use crate::slot::InstanceSlot;
use crate::status::HostStatus;
use crate::supervisor::Supervisor;

/// How often the host checks whether the journals of idle instances need a sync to disk. The loop waits no longer.
const SYNC: Duration = Duration::from_secs(1);

/// The maximum number of idle instances of one guest. The engine's pool has room for these and for those in work.
const IDLE_INSTANCES_MAX: usize = 256;

/// How long a call that waits for a backend may go on after the host is stopped.
const STOP_GRACE: Duration = Duration::from_secs(20);

/// How one world's loop differs from that of others.
pub struct Rules {
    /// The name in `[guests.NAME]`.
    pub guest: &'static str,
    /// The name of the loop, for the watch over it.
    pub name: &'static str,
    /// The maximum number of calls in work, including those that sleep. The engine's pool has room for these and for
    /// idle instances.
    pub jobs_max: usize,
    /// What becomes of a call that did not end.
    pub cut: CutCalls,
    /// What one key is called in the summary.
    pub word: &'static str,
    /// What the summary says in place of what was done, if every key was in its desired state before.
    pub unchanged: &'static str,
    /// What is left running when the host stops, after its number.
    pub left_behind: &'static str,
    /// What is counted of each key for approvals.
    pub counted: &'static str,
}

/// With what a loop runs.
pub(crate) struct LoopContext<'a> {
    /// What connects it with the manager of its guest.
    pub(crate) supervision: Supervision,
    /// Whether this host acts. A host that does not takes in what the source says, but begins no turn.
    pub(crate) leadership: Leadership,
    /// Another loop reads the same source and reports its problems.
    pub(crate) source_is_reported: bool,
    /// With `--once`: the loop ends when nothing is left to do, and gives up keys that fail too often.
    pub(crate) once: bool,
    /// Where events go.
    pub(crate) report: &'a dyn Fn(Event),
}

/// The key of an instance.
pub trait Key: Ord + Clone + std::fmt::Display + FromStr + Send + 'static {}

impl<K: Ord + Clone + std::fmt::Display + FromStr + Send + 'static> Key for K {}

/// What a look at the source changed.
pub struct SourceChanges<K> {
    /// Keys that get a turn.
    pub affected: BTreeSet<K>,
    /// Keys that are not desired, but may be named by something that can't be read.
    pub held: Vec<K>,
    /// Which changes affect which keys.
    pub seen: Vec<ChangedObject<K>>,
    /// The Nodes whose change affects all keys.
    pub nodes: ChangedNodes,
    /// New notes for the operator, one line each.
    pub notes: Vec<String>,
    /// The source holds no object at all, and there is something to lose.
    pub is_empty: bool,
    /// The source holds no Node at all, and there is something to lose.
    pub no_nodes: bool,
    /// Whether everything could be read: what the source does not show is gone.
    pub complete: bool,
    /// The number of objects of each kind.
    pub objects: Vec<(&'static str, usize)>,
}

impl<K> SourceChanges<K> {
    /// The problem of a source that holds nothing, though there is something to lose.
    pub(super) fn lost(&self, source: &Source) -> Option<String> {
        let is_cluster = source.is_cluster();
        let nothing = self.is_empty.then(|| nothing_there(is_cluster));
        nothing.or_else(|| self.no_nodes.then(|| no_nodes(is_cluster)))
    }
}

/// What a turn of a key is to do.
pub enum Wanted<W> {
    /// Calls, with this desired state.
    Work(W),
    /// Nothing: the desired state can't be computed; one line. It stays as it is until the input changes.
    Refused(String),
    /// Nothing: what it is to remove waits for an approval; one line.
    Waits(String),
    /// Nothing: something that can't be read may name the key, so its objects are kept.
    Held,
    /// Nothing: the key is not desired and has nothing.
    Nothing,
    /// Nothing: the key is gone, and nothing of it is to be removed: it never had anything, or others have it by now.
    Forget,
}

/// The result of the last turn of each key.
pub type LastResults<K> = BTreeMap<K, Result<(), String>>;

/// Why a key is not in its desired state, for those who look at its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyProblem<'a> {
    /// It can't reach its desired state now; one line.
    Failed(&'a str),
    /// It stays as it is until it or the guest changes; one line.
    SetAside(&'a str),
    /// It asks for something impossible; one line.
    Refused(&'a str),
}

/// A turn, until it ends.
pub type Turning<W> = Pin<Box<dyn Future<Output = Done<<W as Reconciler>::Key, <W as Reconciler>::Out>> + Send>>;

/// A world of keys.
pub trait Reconciler: Sized {
    /// What the world keeps in its desired state, such as a Service.
    type Key: Key;
    /// The desired state, as calls get it. Its digest identifies what is set aside.
    type Desired: Clone + Serialize;
    /// What a turn finds out, beside its end and its effects. By default: nothing, as a turn that was lost.
    type Out: Default + Send + 'static;
    /// What comes for keys from elsewhere than the source.
    type Mail;

    /// How this loop differs from others.
    const RULES: Rules;

    // What the source says.

    /// Takes in a look at the source.
    fn look(&mut self, batch: &Batch) -> SourceChanges<Self::Key>;
    /// All keys that get a turn when this host begins to act or another version becomes active.
    fn keys(&self) -> BTreeSet<Self::Key>;
    /// Whether the source asks for the key.
    fn is_desired(&self, key: &Self::Key) -> bool;
    /// What the next turn of a key is to do.
    fn wanted(&mut self, key: &Self::Key) -> Wanted<Self::Desired>;
    /// How many of the objects that a key has now it is to keep.
    fn leaves(&self, key: &Self::Key, has: u64) -> u64;
    /// Whether the key surely loses no others: its desired state differs from the one that it last reached only in
    /// parts that [`Reconciler::leaves`] counts. If not, its guest may replace any of its objects.
    fn loses_no_others(&self, _key: &Self::Key) -> bool {
        false
    }
    /// Whether the turn that runs works towards another state than the one that is desired now.
    fn is_outdated(&self, _key: &Self::Key, _desired: &Self::Desired) -> bool {
        false
    }

    // What comes from elsewhere.

    /// The next mail. Never returns if there is none. Safe to drop.
    fn mail(&mut self) -> impl Future<Output = Self::Mail> {
        std::future::pending()
    }
    /// Takes in mail. Returns the key that gets a turn for it, and why.
    fn take_mail(
        &mut self,
        _mail: Self::Mail,
        _may_act: bool,
        _is_running: impl Fn(&Self::Key) -> bool,
    ) -> Option<(Self::Key, Cause)> {
        None
    }
    /// The keys that are due by now, by `Clock::steady_ms`, and why if it is not for a change.
    fn due(&mut self, _steady_ms: u64) -> Vec<(Self::Key, Option<Cause>)> {
        Vec::new()
    }
    /// When the next key is due, by the same clock.
    fn due_ms(&self) -> Option<u64> {
        None
    }
    /// Whether a key waits until it is due, whatever comes for it.
    fn is_gathering(&self, _key: &Self::Key) -> bool {
        false
    }
    /// The next turn of a key is to look at everything.
    fn anew(&mut self, _key: &Self::Key) {}
    /// This host begins to act.
    fn begin_term(&mut self, _acts: &Leadership) {}

    // Turns.

    /// The version with which a turn works.
    fn version(&self, active: Arc<Instances>, _desired: &Self::Desired) -> Arc<Instances> {
        active
    }
    /// Before a turn begins.
    ///
    /// # Errors
    /// One line: the turn can't begin.
    fn prepare(&mut self, _key: &Self::Key, _desired: &Self::Desired) -> Result<(), String> {
        Ok(())
    }
    /// The calls of a turn, in their order.
    fn turn(&mut self, key: &Self::Key, desired: Self::Desired, turn: Turn) -> Turning<Self>;
    /// A turn ended. Takes in what it leaves.
    fn ended(&mut self, _key: &Self::Key, _slot: Option<&InstanceSlot>, _out: &mut Self::Out) {}
    /// When the queue is to try the key again.
    fn outcome(&self, end: &End, _out: &Self::Out, _is_open: bool) -> Outcome {
        failure::outcome(end)
    }
    /// How often in a row the key failed, and in how many milliseconds it gets its next turn. `queued`: as the queue
    /// says, with this outcome.
    fn retry(
        &mut self,
        _key: &Self::Key,
        _end: &End,
        _out: &Self::Out,
        (_outcome, queued): (Outcome, (u32, Option<u64>)),
    ) -> (u32, Option<u64>) {
        queued
    }
    /// The key is in its desired state, or nothing of it is left. Returns the event; `None` if the turn did not find
    /// that out. Reports the key to the holdings as done, if it is: an approval ends with that.
    ///
    /// # Errors
    /// One line: with `--once`, the key is given up all the same.
    fn succeeded(
        &mut self,
        key: &Self::Key,
        gone: bool,
        effects: Effects,
        out: Self::Out,
    ) -> Result<Option<Event>, String>;
    /// What is in service now, as the status shows it.
    fn in_service(_out: &Self::Out) -> Vec<String> {
        Vec::new()
    }
    /// Reports news about a key to those who look at its object.
    fn publish_problem(&self, _key: &Self::Key, _problem: KeyProblem<'_>) {}
    /// The key rests until something comes for it: its turn ended without calls, or it was set aside or given up.
    fn rest(&mut self, _key: &Self::Key, _is_given_up: bool) {}
    /// Nothing is left of a key.
    fn forget(&mut self, _key: &Self::Key) {}
    /// Turns were begun, and the loop is about to wait.
    fn about_to_wait(&mut self, _is_at_rest: bool, _last_results: &LastResults<Self::Key>, _sleepers: usize) {}
    /// With `--once` and an empty queue: whether nothing more is to come.
    fn is_settled(&self, _last_results: &LastResults<Self::Key>) -> bool {
        true
    }

    // The end.

    /// Completes what was reported, within limits.
    fn flush(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    /// What all turns did, such as `created`, and how often. `effects`: as the instances counted.
    fn did(&self, effects: Effects) -> [(&'static str, u64); 2];
}

/// The result of a loop.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Whether everything is in its desired state and everything could be read.
    pub is_true: bool,
    /// The line to begin with, if everything was in its desired state before. `None` if it was not.
    pub unchanged: Option<&'static str>,
    /// Why it ended early. `None` if it did not.
    pub cut_short: Option<String>,
    /// What could not be read, or is not used.
    pub problems: Vec<String>,
    /// Keys that nothing names but whose objects are kept: something that can't be read may name them.
    pub held: Vec<String>,
    /// What is not in its desired state, and why, if the run did not say so before.
    pub failed: Vec<(String, String)>,
    /// The last line.
    pub line: String,
    /// The same as JSON.
    pub json: Box<RawValue>,
}

/// The results of all keys of a loop, as JSON has them.
#[derive(Serialize)]
struct KeyResults {
    /// Keys that are in their desired state.
    succeeded: usize,
    /// Keys that failed, and why.
    failed: BTreeMap<String, String>,
    /// What was done, such as `created`, and how often.
    #[serde(flatten)]
    did: BTreeMap<&'static str, u64>,
    problems: Vec<String>,
    held: Vec<String>,
    cut_short: Option<String>,
}

/// A running turn, as the loop sees it.
struct Running<D> {
    interrupt: Arc<Interrupt>,
    began: Instant,
    /// Its call is to end so that another key can run.
    gives_way: Option<Waits>,
    /// The fence of the epoch in which it began.
    fence: Fence,
    desired: D,
    /// The version it began with, as counted by [`Keyed::versions`].
    version: u64,
    /// Nothing had changed when it began.
    is_resync: bool,
}

/// The loop's state.
pub(crate) struct Keyed<'a, W: Reconciler> {
    world: W,
    shared: Arc<Shared>,
    host_status: Arc<HostStatus>,
    metrics: Arc<Metrics>,
    workers: usize,
    context: LoopContext<'a>,
    /// The queue measures time from here, independent of the wall clock.
    started: Instant,
    controller: Controller<W::Key>,
    /// How many objects each key is known to have.
    object_counts: ObjectCounts,
    /// Whether only keys that the world knows are counted. An earlier process may have ended before it wrote which are
    /// gone.
    counts_are_checked: bool,
    problems: Vec<String>,
    source: Source,
    /// Keys that are not desired, but may be named by something that can't be read.
    held: BTreeSet<W::Key>,
    jobs: JoinSet<Done<W::Key, W::Out>>,
    /// The key of each task, for a task that ends without a result.
    tasks: HashMap<tokio::task::Id, W::Key>,
    running: BTreeMap<W::Key, Running<W::Desired>>,
    /// Instances that wait for their key's next turn, by key. Above the limit, the host drops the one that is idle for
    /// the longest, and rebuilds it from its recording when its key needs it.
    idle: LruCache<String, InstanceSlot>,
    last_results: LastResults<W::Key>,
    effects: Effects,
    /// What the turns of a key did since it last succeeded. Its next event reports that too.
    unreported: BTreeMap<W::Key, Effects>,
    supervisor: Supervisor,
    /// Why the next turn of a key runs.
    pending: PendingCauses<W::Key>,
    /// The version that became active last. `None` if none has since the start.
    became_active: Option<Cause>,
    /// Keys that the operator wants to be worked on now.
    urgent_keys: mpsc::UnboundedReceiver<UrgentKey>,
    /// The number of versions that became active since the start.
    versions: u64,
}

impl<W: Reconciler> Keyed<'_, W> {
    /// Reconciles what the source says, to its end or until `stop`. Takes nothing in before `belongs` confirms that
    /// the state folder belongs to this cluster.
    pub(crate) async fn run(
        mut self,
        input: Input,
        belongs: impl Future<Output = Result<(), String>>,
        stop: impl Future<Output = ()>,
    ) -> serde_json::Result<Summary> {
        let batches = match input.from {
            From::Once(all) => {
                self.take_in(&all);
                None
            }
            From::Watched(batches) => Some(batches),
        };
        self.show_acting();
        let cut_short = self.work(batches, belongs, stop).await;
        self.drain().await;
        self.summary(cut_short)
    }

    /// Milliseconds since the start, independent of the wall clock.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs until `stop`; with `once`, until nothing is left to do. Returns why it ended early.
    async fn work(
        &mut self,
        mut batches: Option<Batches>,
        belongs: impl Future<Output = Result<(), String>>,
        stop: impl Future<Output = ()>,
    ) -> Option<String> {
        let (mut belongs, mut is_ours) = (std::pin::pin!(belongs), false);
        let mut stop = std::pin::pin!(stop);
        let mut terms = self.context.leadership.clone();
        let term = self.context.leadership.term();
        let shared = Arc::clone(&self.shared);
        let mut sync = tokio::time::interval(SYNC);
        sync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Draining may take its time; by then the loop no longer reports that it is alive.
        let beating = self.host_status.begin_loop(W::RULES.name);
        self.world.begin_term(&self.context.leadership);
        loop {
            beating.beat();
            // The term in which the source was listed has ended.
            if self.context.once && (term.is_none() || self.context.leadership.term() != term) {
                return Some("the lease could not be renewed: another host may act now".to_owned());
            }
            self.take_due();
            self.start_jobs();
            self.make_room();
            let (is_at_rest, sleepers) = (self.running.is_empty(), shared.sleepers.count());
            self.world.about_to_wait(is_at_rest, &self.last_results, sleepers);
            if self.is_done() {
                return None;
            }
            let pause = self.pause();
            tokio::select! {
                biased;
                () = &mut stop => return self.context.once.then(|| "stopped before its end".to_owned()),
                () = terms.changed() => self.take_term(),
                Some(handover) = self.context.supervision.handovers.recv() => self.hand_over(handover),
                Some(done) = self.jobs.join_next_with_id() => self.finish(done),
                mail = self.world.mail() => self.take_mail(mail),
                () = self.supervisor.fall_backs.answered() => {}
                () = shared.active.approved.notified() => self.try_waiting(),
                // The operator may have gone; the key gets its turn all the same.
                Some((key, reply)) = self.urgent_keys.recv() => drop(reply.send(self.queue_first(&key))),
                ours = &mut belongs, if !is_ours => match ours {
                    Ok(()) => is_ours = true,
                    Err(why) => return Some(why),
                },
                batch = next(&mut batches), if is_ours => match batch {
                    Some(batch) => self.take_in(&batch),
                    None => return Some("the source can't be watched any more".to_owned()),
                },
                () = shared.sleepers.more() => {}
                () = tokio::time::sleep(pause) => {}
                _ = sync.tick() => {
                    self.idle.iter_mut().for_each(|(_, slot)| slot.tick());
                    self.keep_held(false);
                }
            }
        }
    }

    /// With `once`: whether nothing is left to do.
    fn is_done(&mut self) -> bool {
        // The version that is about to become active may release what is set aside.
        self.context.once
            && self.context.leadership.may_act()
            && self.controller.is_idle()
            && self.world.is_settled(&self.last_results)
            && !self.supervisor.fall_backs.is_under_way()
    }

    /// The time until the next key is due, or [`SYNC`] if none is.
    fn pause(&self) -> Duration {
        let queued = self.controller.next_due_ms().filter(|_| self.has_room());
        let queued = queued.map(|due_ms| due_ms.saturating_sub(self.now_ms()));
        let world = self.world.due_ms().map(|it| it.saturating_sub(SystemClock.steady_ms()));
        let next = queued.into_iter().chain(world).min();
        next.map_or(SYNC, Duration::from_millis)
    }

    /// Lets running turns end: sleeping calls at once if they may be cut, calls that wait for a backend when they
    /// finish, within limits.
    async fn drain(&mut self) {
        for running in self.running.values() {
            running.interrupt.want();
        }
        let until = Instant::now() + STOP_GRACE;
        while let Ok(Some(done)) = tokio::time::timeout_at(until, self.jobs.join_next_with_id()).await {
            self.finish(done);
        }
        if !self.jobs.is_empty() {
            let next = match W::RULES.cut {
                CutCalls::Dropped => "their recordings end inside the call",
                CutCalls::Finished => "the next process finishes them",
            };
            let count = self.jobs.len();
            let what = W::RULES.left_behind;
            let seconds = STOP_GRACE.as_secs();
            tracing::warn!("{count} {what} did not end within {seconds} s: {next}");
            self.context.leadership.leave_behind();
            self.jobs.shutdown().await;
        }
        self.idle.iter_mut().for_each(|(_, slot)| slot.sync());
        self.keep_held(true);
        self.world.flush().await;
    }

    /// The result of the loop. `cut_short`: why it ended early.
    ///
    /// # Errors
    /// If the summary has no form in JSON.
    fn summary(self, cut_short: Option<String>) -> serde_json::Result<Summary> {
        let rules = W::RULES;
        let all = self.last_results.len();
        let failed = self.last_results.into_iter();
        let failed = failed.filter_map(|(key, it)| Some((key.to_string(), it.err()?)));
        let failed: BTreeMap<_, _> = failed.collect();
        let is_true = failed.is_empty() && self.problems.is_empty() && cut_short.is_none();
        let results = KeyResults {
            succeeded: all - failed.len(),
            failed,
            did: self.world.did(self.effects).into(),
            problems: self.problems,
            held: self.held.iter().map(ToString::to_string).collect(),
            cut_short,
        };
        let changed_nothing = is_true && results.did.values().all(|count| *count == 0);
        let did = results.did.iter().map(|(word, count)| format!("{count} {word}"));
        let did = did.collect::<Vec<_>>().join(", ");
        let keys = counted(all, rules.word, &format!("{}s", rules.word));
        let succeeded = results.succeeded;
        let failed = results.failed.len();
        Ok(Summary {
            is_true,
            unchanged: changed_nothing.then_some(rules.unchanged),
            line: format!("{keys}: {succeeded} true, {failed} failed; {did}"),
            json: to_raw_value(&results)?,
            cut_short: results.cut_short,
            problems: results.problems,
            held: results.held,
            failed: Vec::new(),
        })
    }
}
