//! Runs NEGs as a controller: queues changes, ends of operations and due timers by key, and calls each key's
//! instance.
//!
//! Only the loop decides what runs when, and it does no work itself. Jobs run beside it, at most one per key. A
//! guest's calls start operations that go on without it, so the host never cuts a call, and first finishes one that a
//! kill cut short.
//!
//! ```text
//! source -> targets --+
//! ends of operations -+-> inbox of the key -> controller -> job (job.rs) -> board, known keys
//! timers -------------+                          ^            |
//! error state --------+                          +--- done ---+
//! ```

mod approval;
mod aside;
mod finish;
mod idle;
mod inbox;
mod job;
mod known;
mod looked;
mod operations;
pub mod plan;
mod progress;
mod setup;
mod summary;
mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::fence::Fence;
use trueup_capabilities::meter::Effects;
use trueup_capabilities::neg::EndpointGroup;
use trueup_controller::{Backoff, Controller, Outcome, Settings as ControllerSettings};

pub(crate) use self::setup::NegSetup;
pub use self::summary::Summary;
pub use crate::board::Migration;
pub use crate::guests::neg::shown;

use trueup_sources::{Batches, Objects};

use self::approval::Approval;
use self::idle::Idle;
use self::inbox::Inbox;
use self::job::{Done, Job, Shared};
use self::known::KnownNegs;
use self::operations::Ended;
use self::summary::LoopEnd;
use self::turn::LastTurn;
use crate::config::{Config, Neg};
use crate::decisions::{Came, Cause, Decided, Pending};
use crate::event::Event;
use crate::guests::neg::NAME;
use crate::guests::neg::adapter::{Key, NEG_NAMES, Targets, Wish};
use crate::lifecycle::active::Handover;
use crate::lifecycle::quarantine::Quarantine;
use crate::lifecycle::troubles::Troubles;
use crate::setup::SetupError;
use crate::swap::Fallen;
use crate::work::falling::Falling;
use crate::work::input::{From, Input, next};
use crate::work::leading::Acts;
use crate::work::turns::Turns;

/// The maximum number of calls in work, including those that sleep. The host never cuts a call about NEGs, so the
/// limit is higher than for Services. An instance takes 1 MiB or two.
const JOBS_MAX: usize = 512;

/// How often the host checks whether the journals of idle instances need a sync to disk.
const SYNC: Duration = Duration::from_secs(1);

/// How long a call that waits for a backend may go on after the host is stopped. The next process finishes a call
/// that was cut.
const STOP_GRACE: Duration = Duration::from_secs(20);

/// An operator's request to set a key's error state.
pub(crate) struct SetErrorState {
    pub(crate) key: String,
    pub(crate) on: bool,
    /// Whether the request was accepted, or why not, in one line.
    pub(crate) reply: oneshot::Sender<Result<(), String>>,
}

/// What connects the loop with the manager of the guest.
pub(crate) struct Managing {
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) handovers: mpsc::Receiver<Handover>,
    pub(crate) fall_back: mpsc::UnboundedSender<Fallen>,
    pub(crate) acts: Acts,
    /// Receives nothing without a control socket.
    pub(crate) error_states: mpsc::Receiver<SetErrorState>,
    /// Another loop reads the same source and reports its problems.
    pub(crate) source_is_told: bool,
    /// With `--once`: the loop ends when nothing is left to do, and gives up keys that fail too often.
    pub(crate) once: bool,
}

/// The desired result of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Wanted {
    settings: Map<String, Value>,
    target: Vec<EndpointGroup>,
    is_gone: bool,
}

/// A running job, as the loop sees it.
struct Running {
    ending: Arc<AtomicBool>,
    /// The fence of the epoch in which it began.
    fence: Fence,
    wanted: Wanted,
    /// The version it began with, as counted by [`Negs::versions`].
    version: u64,
}

/// What the loop knows of a key, with or without an instance.
#[derive(Debug, Default)]
struct Entry {
    inbox: Inbox,
    /// The digest of the last desired state.
    wish: Option<String>,
    /// When the first timer of its instance is due, by `Clock::steady_ms`.
    timer_ms: Option<u64>,
    last_at_ms: u64,
    /// The number of syncs in a row that met an error, and of operations in a row that failed.
    sync_failures: u32,
    operation_failures: u32,
    /// Its operations in flight, as of its last job.
    in_flight: usize,
    /// Its desired state changed and may change more: since when, and when it is queued, by the loop's clock. `None`
    /// if it does not gather.
    gathers: Option<(u64, u64)>,
    /// With `--once`: it failed too often and is not tried again.
    given_up: bool,
    standing: Option<Result<(), String>>,
}

/// The loop's state.
pub(crate) struct Negs<'a, T> {
    setup: &'a NegSetup,
    shared: Arc<Shared>,
    seed: u64,
    workers: usize,
    once: bool,
    tell: T,
    /// The queue measures time from here, independent of the wall clock.
    started: Instant,
    controller: Controller<Key>,
    targets: Targets,
    /// The contents of the source, to find out what changed.
    objects: Objects,
    known: KnownNegs,
    approval: Approval,
    last_turn: LastTurn,
    /// Calls that began before this time are not finished, since others have acted since. In milliseconds since 1970;
    /// 0 if no other host has acted.
    finishes_from_ms: u64,
    is_cluster: bool,
    source_is_told: bool,
    problems: Vec<String>,
    /// What can't be read and may still name such a key, in the words of the source.
    hidden: &'static str,
    /// Keys that are not desired, but may be named by something that can't be read.
    held: BTreeSet<Key>,
    jobs: JoinSet<Done>,
    /// The key of each task, for a task that ends without a result.
    tasks: HashMap<tokio::task::Id, Key>,
    running: BTreeMap<Key, Running>,
    idle: Idle,
    entries: BTreeMap<Key, Entry>,
    /// When the timers of each key are due, by `Clock::steady_ms`.
    alarms: BTreeSet<(u64, Key)>,
    /// Until when the changes of each key are gathered, by the loop's clock.
    gathering: BTreeSet<(u64, Key)>,
    attached: u64,
    detached: u64,
    quarantine: Arc<Quarantine>,
    troubles: Troubles<Key>,
    pending: Pending<Key>,
    /// The version that became active last. `None` if none has since the start.
    became_active: Option<Cause>,
    handovers: mpsc::Receiver<Handover>,
    /// The number of versions that became active since the start.
    versions: u64,
    acts: Acts,
    falling: Falling,
    error_states: mpsc::Receiver<SetErrorState>,
    ends: mpsc::Receiver<Ended>,
}

impl<'a, T: FnMut(Event)> Negs<'a, T> {
    /// Ready to run. Takes the setup's receiver of ends of operations: each setup has one loop.
    ///
    /// # Errors
    /// If the state folder can't be read.
    pub(crate) fn new(
        config: &Config,
        neg: &Neg,
        setup: &'a NegSetup,
        ends: mpsc::Receiver<Ended>,
        managing: Managing,
        tell: T,
    ) -> Result<Self, SetupError> {
        let Managing {
            quarantine,
            handovers,
            fall_back,
            acts,
            error_states,
            source_is_told,
            once,
        } = managing;
        let unreadable = |error| SetupError::Misused(format!("reading the known keys: {error}"));
        let known = KnownNegs::load(&config.state_dir).map_err(unreadable)?;
        let places = known.places().map_err(unreadable)?;
        let approval = Approval::new(Arc::clone(&setup.active.quotas), &config.state_dir, &neg.guest);
        let approval = approval.map_err(SetupError::misused)?;
        let run = &config.run;
        let workers = usize::try_from(run.workers).unwrap_or(usize::MAX);
        let backoff = Backoff {
            initial_ms: run.backoff_initial_ms,
            max_ms: run.backoff_max_ms,
            ..Backoff::default()
        };
        let shared = Shared {
            active: Arc::clone(&setup.active),
            operations: Arc::clone(&setup.operations),
            sleepers: Arc::default(),
            turns: Turns::new(workers),
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
            targets: Targets::new(&neg.adapter).of(&neg.source).with_places(places),
            objects: Objects::default(),
            known,
            approval,
            last_turn: LastTurn::new(&config.state_dir),
            finishes_from_ms: 0,
            is_cluster: neg.source.is_cluster(),
            source_is_told,
            problems: Vec::new(),
            hidden: neg.source.hidden(),
            held: BTreeSet::new(),
            jobs: JoinSet::new(),
            tasks: HashMap::new(),
            running: BTreeMap::new(),
            idle: Idle::default(),
            entries: BTreeMap::new(),
            alarms: BTreeSet::new(),
            gathering: BTreeSet::new(),
            attached: 0,
            detached: 0,
            quarantine,
            troubles: Troubles::new(neg.guest.failure.clone()),
            pending: Pending::default(),
            became_active: None,
            handovers,
            versions: 0,
            acts,
            falling: Falling::new(fall_back),
            error_states,
            ends,
        })
    }

    /// Reconciles what the source says, to its end or until `stop`. Takes nothing in before `belongs` confirms that
    /// the state folder belongs to this cluster.
    pub(crate) async fn run<E: std::fmt::Display>(
        mut self,
        input: Input,
        belongs: impl Future<Output = Result<(), E>>,
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
    async fn work<E: std::fmt::Display>(
        &mut self,
        mut batches: Option<Batches>,
        belongs: impl Future<Output = Result<(), E>>,
        stop: impl Future<Output = ()>,
    ) -> LoopEnd {
        let (mut belongs, mut is_ours) = (std::pin::pin!(belongs), false);
        let mut stop = std::pin::pin!(stop);
        let mut standing = self.acts.clone();
        let term = self.acts.term();
        let mut sync = tokio::time::interval(SYNC);
        sync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let beating = self.setup.board.begin_loop("negs");
        self.begin_turn();
        let sleepers = Arc::clone(&self.shared.sleepers);
        let end = loop {
            beating.beat();
            if self.once && (term.is_none() || self.acts.term() != term) {
                break LoopEnd::TermEnded;
            }
            self.take_due();
            self.take_gathered();
            self.start_jobs();
            if self.once && self.acts.may() && self.is_settled() && !self.falling.is_under_way() {
                break LoopEnd::NothingLeft;
            }
            let pause = self.pause();
            tokio::select! {
                biased;
                () = &mut stop => break LoopEnd::Stopped,
                () = standing.changed() => self.stand(),
                Some(handover) = self.handovers.recv() => self.hand_over(handover),
                Some(done) = self.jobs.join_next_with_id() => self.finish(done),
                Some(ended) = self.ends.recv() => self.take_end(ended),
                Some(wish) = self.error_states.recv() => self.set_error_state(wish),
                () = self.setup.active.approved.notified() => self.try_waiting(),
                () = self.falling.answered() => {}
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

    /// The time until the next key or timer is due, or [`SYNC`] if nothing is.
    fn pause(&self) -> Duration {
        let turn = self.controller.next_due_ms().filter(|_| self.has_room());
        let turn = turn.map(|due_ms| due_ms.saturating_sub(self.now_ms()));
        let timer = self.alarms.first();
        let timer = timer.map(|(due_ms, _)| due_ms.saturating_sub(SystemClock.steady_ms()));
        let gathered = self.gathering.first();
        let gathered = gathered.map(|(until_ms, _)| until_ms.saturating_sub(self.now_ms()));
        let next = turn.into_iter().chain(timer).chain(gathered).min();
        next.map_or(SYNC, Duration::from_millis)
    }

    /// Whether nothing runs, waits or is in flight, and no timer is set, except for keys that were given up. Anything
    /// that came for a key since has queued it.
    fn is_settled(&self) -> bool {
        self.controller.is_idle()
            && self.entries.values().all(|entry| {
                // What is set aside or refused is not tried again.
                let is_left = matches!(entry.standing, Some(Err(_)));
                entry.given_up || (entry.timer_ms.is_none() && (entry.in_flight == 0 || is_left))
            })
    }

    /// Lets running jobs end, within limits. The next process finishes what is cut.
    async fn drain(&mut self) {
        for running in self.running.values() {
            running.ending.store(true, Ordering::SeqCst);
        }
        let until = Instant::now() + STOP_GRACE;
        while let Ok(Some(done)) = tokio::time::timeout_at(until, self.jobs.join_next_with_id()).await {
            self.finish(done);
        }
        if !self.jobs.is_empty() {
            tracing::warn!(
                "{} calls about NEGs did not end within {} s: the next process finishes them",
                self.jobs.len(),
                STOP_GRACE.as_secs()
            );
            self.acts.leave_behind();
            self.jobs.shutdown().await;
        }
        self.idle.sync();
        self.approval.keep(true);
    }

    fn entry(&mut self, key: &Key) -> &mut Entry {
        self.entries.entry(key.clone()).or_default()
    }

    /// Queues a key: now, or with what it gathers.
    fn changed(&mut self, key: &Key) {
        if self.entry(key).gathers.is_some() {
            return;
        }
        self.setup.board.changed(NAME, &key.to_string());
        if let Err(error) = self.controller.changed(key, self.now_ms()) {
            tracing::error!(%key, "{error}");
            self.setup.board.refused(NAME, &key.to_string(), &error.to_string());
            self.entry(key).standing = Some(Err(error.to_string()));
        }
    }

    /// An operation has ended. Queues the key that started it, if the key still exists.
    fn take_end(&mut self, ended: Ended) {
        let Ended {
            instance,
            operation,
            failure,
        } = ended;
        let key = instance.parse::<Key>().ok().filter(|key| {
            self.running.contains_key(key) || self.known.settings(key).is_some() || self.targets.wish(key).is_some()
        });
        let Some(key) = key else {
            tracing::info!(instance, operation, "an operation of a key that is no more has ended");
            let operations = Arc::clone(&self.setup.operations);
            // This need not complete: if the process ends first, the end comes again.
            tokio::spawn(async move { operations.told(&instance, operation).await });
            return;
        };
        let cause = Cause::Operation {
            operation,
            failure: failure.clone(),
        };
        let entry = self.entry(&key);
        entry.inbox.ends.insert(operation, failure);
        if entry.given_up {
            return;
        }
        self.pending.because(&key, SystemClock.now_ms(), cause);
        self.changed(&key);
    }

    /// Queues the keys whose timers are due. Their jobs use the current instance or rebuild it.
    fn take_due(&mut self) {
        let now_ms = SystemClock.steady_ms();
        while let Some((due_ms, key)) = self.alarms.pop_first() {
            if due_ms > now_ms {
                self.alarms.insert((due_ms, key));
                return;
            }
            self.pending.because(&key, SystemClock.now_ms(), Cause::Timer);
            self.changed(&key);
        }
    }

    /// Sets when the first timer of a key's instance is due.
    fn set_alarm(&mut self, key: &Key, timer_ms: Option<u64>) {
        let before = std::mem::replace(&mut self.entry(key).timer_ms, timer_ms);
        if let Some(before) = before {
            self.alarms.remove(&(before, key.clone()));
        }
        if let Some(timer_ms) = timer_ms {
            self.alarms.insert((timer_ms, key.clone()));
        }
    }

    fn set_error_state(&mut self, wish: SetErrorState) {
        let SetErrorState { key: text, on, reply } = wish;
        if !self.acts.may() {
            let error = "this host does not act now: ask the one that leads".to_owned();
            // The caller may have disconnected.
            let _ = reply.send(Err(error));
            return;
        }
        let key = text.parse::<Key>().and_then(|key| {
            let is_known = self.known.settings(&key).is_some() || self.targets.wish(&key).is_some();
            is_known
                .then_some(key)
                .ok_or_else(|| format!("key `{text}`: no NEG is desired for it; `trueup status --keys` shows all keys"))
        });
        let answer = key.map(|key| {
            let inbox = &mut self.entry(&key).inbox;
            inbox.error_state = Some(on);
            inbox.sync = true;
            self.pending
                .because(&key, SystemClock.now_ms(), Cause::ErrorState { on });
            self.changed(&key);
        });
        // The caller may have disconnected; the request still applies.
        let _ = reply.send(answer);
    }

    /// This host begins to act, or stops acting. Another host that acted in between may have left anything half-done,
    /// so it reconciles every key.
    fn stand(&mut self) {
        if self.acts.term().is_none() {
            return;
        }
        self.begin_turn();
        self.all_again(&Cause::Acts);
    }

    /// Reconciles every key, if this host acts.
    fn all_again(&mut self, cause: &Cause) {
        if self.acts.term().is_none() {
            return;
        }
        let mut keys = self.targets.keys();
        if self.targets.is_complete() {
            keys.extend(self.gone());
        }
        for key in keys {
            self.entry(&key).inbox.sync = true;
            self.pending.because(&key, SystemClock.now_ms(), cause.clone());
            self.changed(&key);
        }
    }

    /// If this host acts and others have acted since, does not finish what it had begun before.
    fn begin_turn(&mut self) {
        let transitions = self.acts.term().and_then(|term| term.transitions);
        if let Some(transitions) = transitions
            && self.last_turn.begin(transitions)
        {
            self.finishes_from_ms = SystemClock.now_ms();
        }
    }

    fn has_room(&self) -> bool {
        let awake = self.jobs.len().saturating_sub(self.shared.sleepers.count());
        self.acts.may() && awake < self.workers && self.jobs.len() < JOBS_MAX
    }

    fn start_jobs(&mut self) {
        while self.has_room() {
            let Some(key) = self.controller.take_ready(self.now_ms()) else {
                return;
            };
            match self.targets.wish(&key) {
                Some(Err(error)) => self.refuse(key, error),
                Some(Ok(Wish { settings, target, .. })) => {
                    let wanted = Wanted {
                        settings,
                        target,
                        is_gone: false,
                    };
                    self.start_or_hold(key, wanted);
                }
                None if self.targets.is_gone(&key) => {
                    if self.may_go(&key) {
                        self.start_emptying(key);
                    }
                }
                None => {
                    if self.known.settings(&key).is_some() {
                        self.hold(key.clone());
                    } else {
                        self.setup.board.gone(NAME, &key.to_string());
                    }
                    self.rest(&key);
                }
            }
        }
    }

    /// Ends the key's turn without a job.
    fn rest(&mut self, key: &Key) {
        // The next job fires the timers that were due.
        self.set_alarm(key, None);
        self.controller.done(key, Outcome::Success, self.now_ms());
    }

    /// Empties the NEGs of a key that is not desired, except those that belong to another key by now.
    fn start_emptying(&mut self, key: Key) {
        let mut settings = self.known.settings(&key).cloned().unwrap_or_default();
        let names = settings.get_mut(NEG_NAMES).and_then(Value::as_object_mut);
        let is_left = names.is_some_and(|names| {
            names.retain(|_, name| {
                let owner = name.as_str().and_then(|name| self.targets.owner(name));
                owner.is_none_or(|owner| *owner == key)
            });
            !names.is_empty()
        });
        if is_left {
            let wanted = Wanted {
                settings,
                target: Vec::new(),
                is_gone: true,
            };
            self.start_or_hold(key, wanted);
            return;
        }
        self.quarantine.release(&key.to_string());
        self.rest(&key);
        self.forget(&key);
    }

    /// The desired state can't be computed. Nothing changes until the input does.
    fn refuse(&mut self, key: Key, error: String) {
        // The entry was for another input.
        self.quarantine.release(&key.to_string());
        self.setup.board.refused(NAME, &key.to_string(), &error);
        self.rest(&key);
        let standing = Some(Err(error.clone()));
        if self.entry(&key).standing != standing {
            self.decided(&key)
                .end(Came::Refused { error: error.clone() }, Effects::default(), &[]);
            (self.tell)(Event::Failed {
                key: key.to_string(),
                error,
                again_in_ms: None,
            });
        }
        self.entry(&key).standing = standing;
    }

    /// A job of this key is about to begin. Records why.
    fn decided(&mut self, key: &Key) -> Decided {
        let status = self.controller.status(key);
        let failures = status.map_or(0, |status| status.failures);
        let error = self.entries.get(key).and_then(|entry| entry.standing.clone()?.err());
        let otherwise = || match status.and_then(|status| status.last) {
            None => Cause::Start,
            Some(Outcome::Success) => Cause::Resync,
            Some(Outcome::Interrupted | Outcome::GaveWay(_)) => Cause::Interrupted,
            Some(Outcome::Failure | Outcome::RetryAfter(_)) => Cause::Retry {
                failures,
                error: error.unwrap_or_default(),
            },
        };
        let why = self.pending.begin(key, SystemClock.now_ms(), otherwise);
        let instances = self.shared.active.instances();
        Decided::new(&instances.state_dir, instances.name, key.to_string(), why, failures)
    }

    fn start(&mut self, key: Key, wanted: Wanted) {
        self.held.remove(&key);
        // On disk before anything is attached, so that it can be found again whatever happens next.
        if !wanted.is_gone
            && let Err(error) = self.known.remember(&key, &wanted.settings)
        {
            self.fail(&key, &error.to_string());
            return;
        }
        let live = self.idle.take(&key);
        let now_ms = SystemClock.steady_ms();
        let entry = self.entry(&key);
        let mut inbox = std::mem::take(&mut entry.inbox);
        if inbox.is_empty() && entry.timer_ms.is_none_or(|timer_ms| timer_ms > now_ms) {
            // Nothing happened since the last job: sync all the same.
            inbox.sync = true;
        }
        let last_at_ms = entry.last_at_ms;
        self.set_alarm(&key, None);
        self.setup.board.began(NAME, &key.to_string());
        let fence = self.acts.fence().of_this_epoch();
        let ending = Arc::new(AtomicBool::new(false));
        let decided = self.decided(&key);
        let job = Job {
            decided,
            key: key.clone(),
            settings: wanted.settings.clone(),
            target: wanted.target.clone(),
            is_gone: wanted.is_gone,
            inbox,
            live,
            last_at_ms,
            finishes_from_ms: self.finishes_from_ms,
            fence: fence.clone(),
            ending: Arc::clone(&ending),
        };
        let running = Running {
            ending,
            fence,
            wanted,
            version: self.versions,
        };
        self.running.insert(key.clone(), running);
        let backends = self.setup.backends(self.seed, &key.to_string());
        let task = self.jobs.spawn(job::run(Arc::clone(&self.shared), job, backends));
        self.tasks.insert(task.id(), key);
    }
}
