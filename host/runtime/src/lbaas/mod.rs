//! Runs Services as a controller: queues changes by key, calls the instance of each key, and reports what it did.
//!
//! Only the loop decides what runs when, and it does no work itself. Jobs run beside it, at most one per key. A job
//! begins while fewer than `workers` calls are awake. A call that sleeps blocks no other job.
//!
//! ```text
//! manifests -> objects -> controller -> job (job.rs) --> status, known keys
//!                 ^                       |
//!                 +------ done -----------+
//! ```

mod approval;
mod aside;
mod finish;
pub(crate) mod granted;
pub(crate) mod job;
pub(crate) mod known;
mod room;
pub(crate) mod setup;
pub(crate) mod summary;
pub(crate) mod wishes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::fence::Fence;
use trueup_capabilities::meter::Effects;
use trueup_controller::{Backoff, Controller, Outcome, Settings as ControllerSettings};
use trueup_sources::{Batch, Batches};

use self::job::{Done, Job, Live, Shared};
use self::known::KnownKeys;
use self::setup::Setup;
use self::summary::Summary;
use self::wishes::Wishes;
use crate::board::Look;
use crate::config::{Config, Lbaas};
use crate::decisions::{Came, Cause, Decided, Pending};
use crate::event::Event;
use crate::guests::lbaas::adapter::{self, Key};
use crate::guests::lbaas::{self, Desired};
use crate::lifecycle::active::Handover;
use crate::lifecycle::quarantine::Quarantine;
use crate::lifecycle::troubles::Troubles;
use crate::setup::SetupError;
use crate::swap::Fallen;
use crate::work::cluster::NotOurs;
use crate::work::falling::Falling;
use crate::work::held::Held;
use crate::work::input::{From, Input, next, no_nodes, nothing_there};
use crate::work::interrupt::{Interrupt, Waits};
use crate::work::leading::Acts;
use crate::work::publish::{News, Publish};
use crate::work::turns::Turns;

/// How often the host checks whether the journals of idle instances need a sync to disk.
const SYNC: Duration = Duration::from_secs(1);

/// How long a call that waits for a backend may go on after the host is stopped.
const STOP_GRACE: Duration = Duration::from_secs(20);

/// Why the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LoopEnd {
    NothingLeft,
    Stopped,
    SourceEnded,
    /// With `--once`: the term in which the source was listed has ended.
    TermEnded,
    /// The state folder belongs to another cluster; one line.
    NotOurs(String),
}

/// A running job, as the loop sees it.
struct Running {
    interrupt: Arc<Interrupt>,
    began: Instant,
    /// Its call is to end so that another key can run.
    gives_way: Option<Waits>,
    /// The fence of the epoch in which it began.
    fence: Fence,
    desired: Option<Desired>,
    /// The version it began with, as counted by [`Services::versions`].
    version: u64,
    /// Nothing had changed when it began.
    is_resync: bool,
}

/// The loop's state.
pub(super) struct Services<'a, T> {
    setup: &'a Setup,
    shared: Arc<Shared>,
    seed: u64,
    workers: usize,
    once: bool,
    tell: T,
    /// The queue measures time from here, independent of the wall clock.
    started: Instant,
    controller: Controller<Key>,
    wishes: Wishes,
    /// How many objects each key is known to have.
    held_objects: Held,
    problems: Vec<String>,
    /// What can't be read and may still name such a key, in the words of the source.
    hidden: &'static str,
    /// Keys that are not desired, but may be named by something that can't be read.
    held: BTreeSet<Key>,
    jobs: JoinSet<Done>,
    /// The key of each task, for a task that ends without a result.
    tasks: HashMap<tokio::task::Id, Key>,
    running: BTreeMap<Key, Running>,
    /// Idle instances, and the order in which they became idle.
    idle: BTreeMap<Key, (u64, Live)>,
    idle_order: BTreeMap<u64, Key>,
    rests: u64,
    /// The result of each key's last job.
    standing: BTreeMap<Key, Result<(), String>>,
    effects: Effects,
    quarantine: Arc<Quarantine>,
    /// What went wrong with each key and its current input.
    troubles: Troubles<Key>,
    /// Why the next job of a key runs.
    pending: Pending<Key>,
    /// The version that became active last. `None` if none has since the start.
    became_active: Option<Cause>,
    /// Versions that are to become active.
    handovers: mpsc::Receiver<Handover>,
    /// The number of versions that became active since the start.
    versions: u64,
    /// Whether this host acts. A host that does not takes in what the source says, but begins no job.
    acts: Acts,
    /// Requests for the version that the failure policy names.
    falling: Falling,
}

/// What connects the loop with the manager of the guest.
pub(super) struct Managing {
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) handovers: mpsc::Receiver<Handover>,
    pub(super) fall_back: mpsc::UnboundedSender<Fallen>,
    pub(super) acts: Acts,
}

impl<'a, T: FnMut(Event)> Services<'a, T> {
    /// Ready to run. With `once`, the run gives up a key that fails too often, and ends when nothing is left to do.
    ///
    /// # Errors
    /// If the state folder can't be read.
    pub(super) fn new(
        config: &Config,
        lbaas: &Lbaas,
        setup: &'a Setup,
        managing: Managing,
        publish: Arc<dyn Publish>,
        once: bool,
        tell: T,
    ) -> Result<Self, SetupError> {
        let Managing {
            quarantine,
            handovers,
            fall_back,
            acts,
        } = managing;
        let known = KnownKeys::load(&config.state_dir.join("keys").join(lbaas::NAME));
        let known = known.map_err(|error| SetupError::Misused(format!("reading the known keys: {error}")))?;
        let wishes = Wishes::new(lbaas.adapter.clone(), &config.state_dir).map_err(SetupError::misused)?;
        let wishes = wishes.of(&lbaas.source);
        let held = Held::open(&config.state_dir, lbaas::NAME).map_err(SetupError::misused)?;
        setup.quotas.holdings.guard(lbaas.guest.approve_above);
        setup.quotas.holdings.restore(held.kept());
        let run = &config.run;
        let workers = usize::try_from(run.workers).unwrap_or(usize::MAX);
        let backoff = Backoff {
            initial_ms: run.backoff_initial_ms,
            max_ms: run.backoff_max_ms,
            ..Backoff::default()
        };
        let shared = Shared {
            active: Arc::clone(&setup.active),
            known: Mutex::new(known),
            settings: lbaas.adapter.clone(),
            sleepers: Arc::default(),
            turns: Turns::new(workers),
            publish,
        };
        Ok(Self {
            setup,
            shared: Arc::new(shared),
            seed: config.seed,
            workers,
            once,
            tell,
            started: Instant::now(),
            controller: Controller::new(
                ControllerSettings {
                    backoff,
                    resync_ms: if once { 0 } else { run.resync_ms },
                },
                config.seed,
            ),
            wishes,
            held_objects: held,
            problems: Vec::new(),
            hidden: lbaas.source.hidden(),
            held: BTreeSet::new(),
            jobs: JoinSet::new(),
            tasks: HashMap::new(),
            running: BTreeMap::new(),
            idle: BTreeMap::new(),
            idle_order: BTreeMap::new(),
            rests: 0,
            standing: BTreeMap::new(),
            effects: Effects::default(),
            quarantine,
            troubles: Troubles::new(lbaas.guest.failure.clone()),
            pending: Pending::default(),
            became_active: None,
            handovers,
            versions: 0,
            acts,
            falling: Falling::new(fall_back),
        })
    }

    /// Reconciles what the source says, to its end or until `stop`. Takes nothing in before `belongs` confirms that
    /// the state folder belongs to this cluster.
    pub(super) async fn run(
        mut self,
        input: Input,
        belongs: impl Future<Output = Result<(), NotOurs>>,
        stop: impl Future<Output = ()>,
    ) -> Summary {
        let batches = match input.from {
            From::Once(all) => {
                self.take_in(all);
                None
            }
            From::Watched(batches) => Some(batches),
        };
        let end = self.work(batches, belongs, stop).await;
        self.summary(end)
    }

    /// Milliseconds since the start, independent of the wall clock.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs until `stop`; with `once`, until nothing is left to do.
    async fn work(
        &mut self,
        mut batches: Option<Batches>,
        belongs: impl Future<Output = Result<(), NotOurs>>,
        stop: impl Future<Output = ()>,
    ) -> LoopEnd {
        let (mut belongs, mut is_ours) = (std::pin::pin!(belongs), false);
        let mut stop = std::pin::pin!(stop);
        let mut standing = self.acts.clone();
        let term = self.acts.term();
        let sleepers = Arc::clone(&self.shared.sleepers);
        let mut sync = tokio::time::interval(SYNC);
        sync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let beating = self.setup.board.begin_loop("services");
        let end = loop {
            beating.beat();
            self.setup.board.sleeping(sleepers.count());
            if self.once && (term.is_none() || self.acts.term() != term) {
                break LoopEnd::TermEnded;
            }
            self.start_jobs();
            self.note_all_listed();
            self.make_room();
            // The version that is about to become active may release what is set aside.
            if self.once && self.acts.may() && self.controller.is_idle() && !self.falling.is_under_way() {
                break LoopEnd::NothingLeft;
            }
            let due_ms = self.controller.next_due_ms().filter(|_| self.has_room());
            // If nothing is due, jobs and changes wake the loop; the hour is arbitrary.
            let pause = due_ms.map_or(Duration::from_secs(3600), |due_ms| {
                Duration::from_millis(due_ms.saturating_sub(self.now_ms()))
            });
            tokio::select! {
                biased;
                () = &mut stop => break LoopEnd::Stopped,
                () = standing.changed() => self.stand(),
                Some(handover) = self.handovers.recv() => self.hand_over(handover),
                Some(done) = self.jobs.join_next_with_id() => self.finish(done),
                () = self.falling.answered() => {}
                () = self.setup.active.approved.notified() => self.try_waiting(),
                ours = &mut belongs, if !is_ours => match ours {
                    Ok(()) => is_ours = true,
                    Err(why) => break LoopEnd::NotOurs(why.to_string()),
                },
                batch = next(&mut batches), if is_ours => match batch {
                    Some(batch) => self.take_in(batch),
                    None => break LoopEnd::SourceEnded,
                },
                () = sleepers.more() => {}
                () = tokio::time::sleep(pause) => {}
                _ = sync.tick() => self.sync_idle(),
            }
        };
        // Draining may take its time; the loop no longer reports that it is alive.
        drop(beating);
        self.drain().await;
        end
    }

    /// Lets running jobs end: sleeping calls at once, calls that wait for a backend when they finish, within limits.
    async fn drain(&mut self) {
        for running in self.running.values() {
            running.interrupt.want();
        }
        let until = Instant::now() + STOP_GRACE;
        while let Ok(Some(done)) = tokio::time::timeout_at(until, self.jobs.join_next_with_id()).await {
            self.finish(done);
        }
        if !self.jobs.is_empty() {
            tracing::warn!(
                "{} calls did not end within {} s: their recordings end inside the call",
                self.jobs.len(),
                STOP_GRACE.as_secs()
            );
            self.acts.leave_behind();
            self.jobs.shutdown().await;
        }
        for (_, live) in self.idle.values_mut() {
            live.sync();
        }
        self.keep_held(true);
        self.shared.publish.flush().await;
    }

    fn known(&self) -> MutexGuard<'_, KnownKeys> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what the source says, including what can't be read.
    fn take_in(&mut self, batch: Batch) {
        for problem in &batch.new_problems {
            (self.tell)(Event::Problem(problem.to_string()));
        }
        self.problems = batch.problems.iter().map(ToString::to_string).collect();
        let has_keys = self.known().keys().next().is_some();
        let unreadable = self.wishes.take_in_unreadable(&batch.unreadable);
        let mut changed = self.wishes.take_in(&batch.changes, batch.complete, has_keys);
        changed.affected.extend(unreadable);
        if changed.is_empty {
            let problem = nothing_there(self.wishes.is_cluster());
            self.problems.push(problem.clone());
            (self.tell)(Event::Problem(problem));
        }
        if changed.no_nodes {
            let problem = no_nodes(self.wishes.is_cluster());
            self.problems.push(problem.clone());
            (self.tell)(Event::Problem(problem));
        }
        for note in &changed.notes {
            tracing::warn!("{note}");
        }
        if let Err(error) = self.wishes.remember() {
            tracing::warn!("the servers are not remembered for the next start: {error}");
        }
        if changed.completed {
            // Keys that were deleted while the host was down, or while a manifest could not be read.
            changed.affected.extend(self.gone());
            changed.affected.extend(self.set_aside_and_gone());
            self.say_what_is_not_seen();
        } else if !self.wishes.is_complete() {
            for key in self.gone() {
                self.hold(key);
            }
        }
        self.setup.board.looked(Look {
            objects: &self.wishes.counts(),
            changes: batch.changes.len(),
            complete: self.wishes.is_complete(),
            problems: &self.problems,
        });
        let seen = (std::mem::take(&mut changed.seen), std::mem::take(&mut changed.nodes));
        self.pending
            .take_in(SystemClock.now_ms(), seen, &changed.affected, self.wishes.is_complete());
        self.expect(&changed.affected);
        let now_ms = self.now_ms();
        for key in changed.affected {
            self.setup.board.changed(lbaas::NAME, &key.to_string());
            if let Some(running) = self.running.get(&key) {
                // A job already runs with the same desired state.
                if self.wishes.wish(&key).and_then(Result::ok) != running.desired {
                    running.interrupt.want();
                }
            }
            if let Err(error) = self.controller.changed(&key, now_ms) {
                tracing::error!(%key, "{error}");
                self.setup
                    .board
                    .refused(lbaas::NAME, &key.to_string(), &error.to_string());
                self.standing.insert(key, Err(error.to_string()));
            }
        }
    }

    /// Keys that have objects and are no longer desired.
    fn gone(&self) -> Vec<Key> {
        let known = self.known();
        let keys = known.keys().filter_map(key_of);
        keys.filter(|key| self.wishes.is_seen(key) && self.wishes.wish(key).is_none())
            .collect()
    }

    /// Watching fewer namespaces than before does not mean that the Services of the others are gone.
    fn say_what_is_not_seen(&self) {
        let known = self.known();
        let count = known
            .keys()
            .filter_map(key_of)
            .filter(|key| !self.wishes.is_seen(key))
            .count();
        if count > 0 {
            tracing::warn!(
                "{count} services whose objects may exist are in namespaces that are not looked at: they stay as they are; \
                 see `namespaces` under [source.kubernetes]"
            );
        }
    }

    /// Keys that are set aside and no longer desired, including those that have no objects.
    fn set_aside_and_gone(&self) -> Vec<Key> {
        let all = self.quarantine.all().into_iter();
        let keys = all.filter_map(|entry| key_of(&entry.instance));
        keys.filter(|key| self.wishes.wish(key).is_none()).collect()
    }

    /// Keeps the objects of a key while something that can't be read may name it.
    fn hold(&mut self, key: Key) {
        self.setup.board.held(lbaas::NAME, &key.to_string());
        if self.held.insert(key.clone()) {
            (self.tell)(Event::Held {
                key: key.to_string(),
                why: self.hidden,
            });
        }
    }

    /// This host begins to act, or stops acting. It restarts what it began before. Another host that acted in between
    /// may have left anything half-done, so it reconciles every key.
    fn stand(&mut self) {
        for running in self.running.values() {
            running.interrupt.want();
        }
        self.all_again(&Cause::Acts);
    }

    /// Reconciles every key, if this host acts.
    fn all_again(&mut self, cause: &Cause) {
        if self.acts.term().is_none() {
            return;
        }
        let now_ms = self.now_ms();
        let mut keys = self.wishes.keys();
        keys.extend(self.wishes.left_over());
        if self.wishes.is_complete() {
            keys.extend(self.gone());
            keys.extend(self.set_aside_and_gone());
        }
        for key in keys {
            self.pending.because(&key, SystemClock.now_ms(), cause.clone());
            self.setup.board.changed(lbaas::NAME, &key.to_string());
            if let Err(error) = self.controller.changed(&key, now_ms) {
                tracing::error!(%key, "{error}");
                self.standing.insert(key, Err(error.to_string()));
            }
        }
    }

    fn start_jobs(&mut self) {
        while self.has_room() {
            let Some(key) = self.controller.take_ready(self.now_ms()) else {
                return;
            };
            match self.wishes.wish(&key) {
                Some(Err(error)) => self.refuse(key, error),
                Some(Ok(desired)) => self.start_or_hold(key, Some(desired)),
                None if self.wishes.is_gone(&key) => self.start_or_hold(key, None),
                None => {
                    if self.wishes.places(&self.known(), &key).is_empty() {
                        self.setup.board.gone(lbaas::NAME, &key.to_string());
                    } else {
                        self.hold(key.clone());
                    }
                    self.controller.forget(&key);
                    self.controller.done(&key, Outcome::Success, self.now_ms());
                }
            }
        }
    }

    /// The desired state can't be computed. Nothing changes until the input does.
    fn refuse(&mut self, key: Key, error: String) {
        // The entry was for another input.
        self.quarantine.release(&key.to_string());
        self.setup.board.refused(lbaas::NAME, &key.to_string(), &error);
        self.controller.done(&key, Outcome::Success, self.now_ms());
        let is_new = self
            .standing
            .get(&key)
            .is_none_or(|standing| standing.as_ref().err() != Some(&error));
        if is_new {
            self.shared.publish.say(&key, News::Refused(&error));
            self.decided(&key)
                .end(Came::Refused { error: error.clone() }, Effects::default(), &[]);
            (self.tell)(Event::Failed {
                key: key.to_string(),
                error: error.clone(),
                again_in_ms: None,
            });
        }
        self.standing.insert(key, Err(error));
    }

    /// A job of this key is about to begin. Records why.
    fn decided(&mut self, key: &Key) -> Decided {
        let status = self.controller.status(key);
        let failures = status.map_or(0, |status| status.failures);
        let otherwise = || match status.and_then(|status| status.last) {
            None => Cause::Start,
            Some(Outcome::Success) => Cause::Resync,
            Some(Outcome::Interrupted | Outcome::GaveWay(_)) => Cause::Interrupted,
            Some(Outcome::Failure | Outcome::RetryAfter(_)) => Cause::Retry {
                failures,
                error: self
                    .standing
                    .get(key)
                    .and_then(|it| it.clone().err())
                    .unwrap_or_default(),
            },
        };
        let why = self.pending.begin(key, SystemClock.now_ms(), otherwise);
        let instances = self.shared.active.instances();
        Decided::new(&instances.state_dir, instances.name, key.to_string(), why, failures)
    }

    fn start(&mut self, key: Key, desired: Option<Desired>) {
        self.held.remove(&key);
        let places = self.wishes.places(&self.known(), &key);
        if let Some(desired) = &desired
            && !places.contains_key(&desired.service_uid)
            && desired.service_uid == adapter::made_uid(&key, self.wishes.settings())
        {
            tracing::info!(%key, "the Service has no metadata.uid: its objects carry {}", desired.service_uid);
        }
        let is_moved = |uid: &&String| self.wishes.owner(uid).is_some_and(|owner| *owner != key);
        let moved = places.keys().filter(is_moved).cloned().collect();
        let live = self.idle.remove(&key).map(|(rest, live)| {
            self.idle_order.remove(&rest);
            live
        });
        let interrupt = live
            .as_ref()
            .map_or_else(Interrupt::new, |live| Arc::clone(&live.interrupt));
        interrupt.clear();
        self.setup.board.began(lbaas::NAME, &key.to_string());
        let fence = self.acts.fence().of_this_epoch();
        let decided = self.decided(&key);
        self.running.insert(
            key.clone(),
            Running {
                interrupt: Arc::clone(&interrupt),
                began: Instant::now(),
                gives_way: None,
                fence: fence.clone(),
                desired: desired.clone(),
                version: self.versions,
                is_resync: decided.is_resync(),
            },
        );
        let api = self.setup.api_of(self.wishes.owned(&key, &places));
        let backends = self.setup.backends(self.seed, &key.to_string(), api);
        let job = Job {
            decided,
            key: key.clone(),
            desired,
            places,
            moved,
            fence,
            live,
            interrupt,
        };
        let task = self.jobs.spawn(job::run(Arc::clone(&self.shared), job, backends));
        self.tasks.insert(task.id(), key);
    }

    fn summary(&self, end: LoopEnd) -> Summary {
        let failed = self
            .standing
            .iter()
            .filter_map(|(key, standing)| Some((key.to_string(), standing.clone().err()?)));
        Summary {
            succeeded: self.standing.values().filter(|standing| standing.is_ok()).count(),
            failed: failed.collect(),
            created: self.effects.created,
            destroyed: self.effects.destroyed,
            problems: self.problems.clone(),
            held: self.held.iter().map(ToString::to_string).collect(),
            cut_short: match end {
                LoopEnd::Stopped if self.once => Some("stopped before its end".to_owned()),
                LoopEnd::SourceEnded => Some("the source can't be watched any more".to_owned()),
                LoopEnd::TermEnded => Some("the lease could not be renewed: another host may act now".to_owned()),
                LoopEnd::NotOurs(why) => Some(why),
                LoopEnd::NothingLeft | LoopEnd::Stopped => None,
            },
        }
    }
}

/// Parses `namespace/name`. `None` if it is not a key.
fn key_of(text: impl AsRef<str>) -> Option<Key> {
    let (namespace, name) = text.as_ref().split_once('/')?;
    Some(Key {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}
