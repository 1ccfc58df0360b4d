//! One instance: makes its calls one after another, applies changes to it, and rebuilds it.
//!
//! ```text
//! start:   begin -> interfaces, remembered and listed -> read the store -> spool -> requests
//! a trap:  as at the start, without the spool; from the recording if the guest does not read the store
//! a loss:  begin from what is durable, as at the start
//! ```
//! The store is authoritative, never the recording, which may lag behind the store after a crash or a trap.
//!
//! Answers wait for their sync in `durability.rs`, and the actor goes on meanwhile. The actor itself waits only if
//! something must be durable before a file changes: a release before it leaves the spool, an interface that is given
//! up before its event, an address that left before it is forgotten; and for the file of what the guest gets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use trueup_capabilities::Backends;
use trueup_capabilities::cri::Runtime;
use trueup_sources::enis::Enis;

use super::Managing;
use super::datastore::Datastore;
use super::durability::{Answers, Lost};
use super::enis::{Addition, Inventory, Removal, Traits};
use super::failing::Failing;
use super::holders::Holders;
use super::protocol::{self, Answer, Command, Done, Gc, Refusal};
use super::released::Released;
use super::remembered::Remembered;
use super::spool::{Release, Spool, Whose};
use super::{Event, PHASE, PHASE_FROM_RUNTIME, READING_RETRY, READINGS_MAX_ONCE, Settings, Shown, Stats, Summary};
use crate::guests::ipam::{EniInfos, Error, IpamKey};
use crate::lifecycle::active::Handover;
use crate::work::slot::Failure;

/// How often the actor looks at the spool. Retries failed releases and finds new ones.
const SPOOL_PERIOD: Duration = Duration::from_secs(30);

/// The maximum number of releases in one turn. Each is a call of some microseconds, and requests wait meanwhile.
const SPOOL_AT_ONCE_MAX: usize = 64;

/// How often the actor tries again to remove what left the list of interfaces, if no pod's end triggered that.
const LEAVING_PERIOD: Duration = Duration::from_secs(30);

/// How often the actor looks for unused interfaces. By default an interface is young for 60 s and an address rests
/// for 30 s.
const WARM_PERIOD: Duration = Duration::from_secs(30);

/// The end of a pod triggers a look for unused interfaces, but not more often than this: many pods end together.
const WARM_PAUSE: Duration = Duration::from_secs(1);

/// How long after something left the guest the actor forgets it, together with everything else that left.
const FORGET_PAUSE: Duration = Duration::from_secs(1);

/// When the actor tries again if it can't forget, for example because the disk is full.
const FORGET_RETRY: Duration = Duration::from_secs(30);

/// How often the actor asks the container runtime for its sandboxes.
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// A pod that got no address asks again within this time, as kubelet does.
const REFUSED_FOR: Duration = Duration::from_secs(120);

/// How often the recording is checked for a sync to disk.
const SYNC_PERIOD: Duration = Duration::from_secs(1);

/// After more than this many calls in a row in which the instance ended, the actor pauses before it begins the
/// instance again.
const ENDS_AT_ONCE_MAX: u32 = 3;

/// The first of these pauses; each is twice the one before. Requests wait meanwhile and are not refused.
const ENDED_PAUSE: Duration = Duration::from_millis(10);

/// The longest of these pauses: requests have 10 s by default.
const ENDED_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pause before the actor tries again to begin an instance that failed to begin. It doubles each time. Requests
/// are refused meanwhile.
const DOWN_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause between such tries.
const DOWN_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A request to an instance, and the channel for its answer.
pub(super) struct Job {
    pub(super) command: Command,
    /// `namespace/name`, if it is known.
    pub(super) pod: Option<String>,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// Whether the instance serves pods. STATUS reads it without waiting in the queue.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<Option<String>>);

impl Standing {
    /// Before the store was read, the instance serves no pods.
    pub(super) fn new() -> Self {
        Self(Mutex::new(Some("the instance is being brought up".to_owned())))
    }

    /// Why the instance serves no pods. `None` if it does.
    pub(super) fn why_not(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, why_not: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why_not;
    }
}

/// The parts of an instance.
pub(super) struct Parts {
    pub(super) settings: Settings,
    pub(super) managed: Managing,
    pub(super) backends: Backends,
    pub(super) enis: watch::Receiver<Enis>,
    pub(super) released: Released,
    pub(super) remembered: Remembered,
    /// All instances of this host.
    pub(super) all: BTreeSet<String>,
    pub(super) standing: Arc<Standing>,
    pub(super) events: mpsc::UnboundedSender<Event>,
}

/// A running instance.
pub(super) struct Actor {
    settings: Settings,
    datastore: Datastore,
    answers: Answers,
    enis: watch::Receiver<Enis>,
    /// What the guest should have.
    wanted: Inventory,
    /// What the guest has.
    has: Inventory,
    /// Addresses that the guest refused. They are not tried again until the list changes.
    refused: BTreeSet<(String, String)>,
    /// Interfaces whose changed traits were reported.
    told: BTreeMap<String, Traits>,
    released: Released,
    /// At least what the guest got: pods may use what left the list, and a reading drops allocations that no
    /// interface has.
    remembered: Remembered,
    spool: Option<Spool>,
    /// Releases that wait for their turn.
    releases: VecDeque<Release>,
    /// How many of them succeeded and failed since they were listed.
    worked_off: Worked,
    all: BTreeSet<String>,
    /// Why the store is not read. `None` if it is.
    unread: Option<String>,
    /// Whether an instance was begun in this process.
    is_begun: bool,
    /// The store lost what it had stored with later entries than this, and the instance was not begun since.
    stands: Option<u64>,
    /// Readings in a row that failed.
    readings_failed: u32,
    /// How to begin the instance after it ended in a call.
    after_end: Begin,
    /// Calls in a row in which the instance ended.
    ends: u32,
    /// Failed tries in a row to begin it.
    downs: u32,
    due: Due,
    standing: Arc<Standing>,
    events: mpsc::UnboundedSender<Event>,
    /// Versions that are to become active.
    handovers: mpsc::Receiver<Handover>,
    /// Whether the guest still has a manager.
    is_managed: bool,
    failing: Failing,
    holders: Holders,
    /// What was last reported about them.
    counted: Option<(Stats, Vec<String>)>,
    /// When a pod last asked for an address and none was free.
    refused_at: Option<Instant>,
    runtime: Option<Arc<dyn Runtime>>,
    /// The current look at the container runtime.
    looking: Option<JoinHandle<Result<BTreeSet<String>, String>>>,
    /// Why the last look failed. Logged once.
    look_failed: Option<String>,
}

/// When each task is due. `None` if it is not.
#[derive(Debug, Default)]
struct Due {
    begin: Option<Instant>,
    reading: Option<Instant>,
    spool: Option<Instant>,
    leaving: Option<Instant>,
    warm: Option<Instant>,
    forget: Option<Instant>,
    sync: Option<Instant>,
    look: Option<Instant>,
    last_warm: Option<Instant>,
}

impl Due {
    fn next(&self) -> Option<Instant> {
        let all = [
            self.begin,
            self.reading,
            self.spool,
            self.leaving,
            self.warm,
            self.forget,
            self.sync,
            self.look,
        ];
        all.into_iter().flatten().min()
    }
}

/// Takes what is due.
fn take_due(due: &mut Option<Instant>) -> bool {
    due.take_if(|at| *at <= Instant::now()).is_some()
}

/// The result of working off the spool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Worked {
    pub(super) done: usize,
    pub(super) kept: usize,
}

/// How to begin an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// With only what the store has.
    FromStore,
    /// With its recorded state.
    FromRecording,
}

impl Begin {
    /// After a call in which the instance ended. A DEL may have stored the release and nothing more: the recording
    /// still has the pod's address, ADD would return it without another write, and the next host would not know of
    /// it. A guest that reads from the container runtime is different: the runtime may not know every pod yet that
    /// got an answer. Its reading writes down what the guest has.
    fn after_end(settings: &Value) -> Self {
        match settings.get(PHASE).and_then(Value::as_u64) {
            Some(PHASE_FROM_RUNTIME) => Self::FromRecording,
            _ => Self::FromStore,
        }
    }
}

impl Actor {
    /// Must be called inside a runtime.
    pub(super) fn new(parts: Parts) -> Self {
        let answers = Answers::new(parts.backends.checkpoint.clone());
        let Managing {
            active,
            handovers,
            failing,
            runtime,
        } = parts.managed;
        let after_end = Begin::after_end(&active.instances().settings);
        let active_dir = active.instances().state_dir.clone();
        let datastore = Datastore::new(active, &parts.settings.instance, parts.backends);
        let spool = parts.settings.spool_dir.as_deref().map(Spool::new);
        let holders = Holders::new(&active_dir, &parts.settings.instance);
        Self {
            settings: parts.settings,
            datastore,
            answers,
            enis: parts.enis,
            wanted: Inventory::default(),
            has: Inventory::default(),
            refused: BTreeSet::new(),
            told: BTreeMap::new(),
            released: parts.released,
            remembered: parts.remembered,
            spool,
            releases: VecDeque::new(),
            worked_off: Worked::default(),
            all: parts.all,
            unread: Some("it was not read yet".to_owned()),
            is_begun: false,
            stands: None,
            readings_failed: 0,
            after_end,
            ends: 0,
            downs: 0,
            due: Due::default(),
            standing: parts.standing,
            events: parts.events,
            handovers,
            is_managed: true,
            failing,
            holders,
            counted: None,
            refused_at: None,
            runtime,
            looking: None,
            look_failed: None,
        }
    }

    /// Brings the instance up: its interfaces, the first reading, and the spool if that succeeded.
    pub(super) async fn start(&mut self) {
        let now = Instant::now();
        self.due.sync = Some(now + SYNC_PERIOD);
        self.due.leaving = Some(now + LEAVING_PERIOD);
        self.due.warm = self.settings.warm.map(|_| now + WARM_PERIOD);
        self.due.look = self.runtime.as_ref().map(|_| now);
        self.take_in_enis();
        self.begin(Begin::FromStore).await;
        while self.has_releases() {
            self.work_off_some().await;
        }
    }

    /// Serves until all senders of requests are gone, then gives out the last answers.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut is_watched = true;
        loop {
            // The sync is always due at some time.
            let due = self.due.next().unwrap_or_else(|| Instant::now() + SYNC_PERIOD);
            let has_releases = self.has_releases();
            tokio::select! {
                biased;
                lost = self.answers.next_lost() => self.roll_back(lost).await,
                changed = self.enis.changed(), if is_watched => {
                    is_watched = changed.is_ok();
                    self.follow_list().await;
                }
                () = tokio::time::sleep_until(due) => self.do_due().await,
                handover = self.handovers.recv(), if self.is_managed => match handover {
                    Some(handover) => self.hand_over(handover).await,
                    None => self.is_managed = false,
                },
                job = jobs.recv() => match job {
                    Some(job) => self.serve(job).await,
                    None => break,
                },
                () = std::future::ready(()), if has_releases => {}
            }
            // Alternates with requests, so that neither waits for all of the other.
            self.work_off_some().await;
        }
        self.end().await;
    }

    /// Works until the store is read and the spool worked off, the reading failed too often, or `stop`.
    pub(super) async fn run_once(mut self, stop: impl Future<Output = ()>) -> Summary {
        let mut stop = std::pin::pin!(stop);
        self.start().await;
        let mut error = None;
        while let Some(why) = &self.unread {
            if self.readings_failed.max(self.downs) >= READINGS_MAX_ONCE {
                error = Some(why.clone());
                break;
            }
            let due = self.due.next().unwrap_or_else(|| Instant::now() + SYNC_PERIOD);
            tokio::select! {
                biased;
                () = &mut stop => {
                    error = Some("stopped before its end".to_owned());
                    break;
                }
                () = tokio::time::sleep_until(due) => self.do_due().await,
            }
            while self.has_releases() {
                self.work_off_some().await;
            }
        }
        let Worked { done, kept } = self.worked_off;
        if error.is_none() && kept > 0 {
            error = Some(format!("{kept} releases of the spool could not be worked off"));
        }
        let stats = match self.datastore.stats().await {
            Ok(stats) => stats,
            Err(Failure { error: why, .. }) => {
                error.get_or_insert(why);
                Stats::default()
            }
        };
        if let Err(why) = self.answers.settle(self.datastore.last_entry()).await {
            error.get_or_insert(why);
        }
        let instance = self.settings.instance.clone();
        self.end().await;
        Summary {
            instance,
            stats,
            released: done,
            error,
        }
    }

    /// Gives out the last answers, and syncs the recording.
    async fn end(mut self) {
        if self.due.forget.is_some() {
            self.forget_gone().await;
        }
        self.holders.write(true);
        self.datastore.sync();
        self.answers.end().await;
    }

    fn tell(&self, event: Event) {
        // The receiver may be gone.
        let _ = self.events.send(event);
    }

    fn name(&self) -> String {
        self.settings.instance.clone()
    }

    /// Updates what STATUS reports.
    fn stand(&self) {
        self.standing.set(self.unread.clone());
    }

    fn is_serving(&self) -> bool {
        self.unread.is_none() && self.datastore.is_live()
    }

    // Beginning, and beginning again.

    /// Begins the instance. Afterwards its store is read or will be read again soon, or the instance is to be begun
    /// again soon.
    async fn begin(&mut self, mut how: Begin) {
        self.due.begin = None;
        loop {
            let Err(Failure { error, .. }) = self.try_begin(how).await else {
                break;
            };
            self.datastore.end();
            self.due.reading = None;
            if how == Begin::FromRecording {
                tracing::warn!(
                    instance = self.settings.instance,
                    "it can't go on from its recording ({error}): beginning with what the store has"
                );
                how = Begin::FromStore;
                continue;
            }
            self.downs = self.downs.saturating_add(1);
            let pause = doubled(DOWN_PAUSE, self.downs, DOWN_PAUSE_MAX);
            self.due.begin = Some(Instant::now() + pause);
            self.tell(Event::Down {
                instance: self.name(),
                error: error.clone(),
                again_in_ms: ms(pause),
            });
            self.unread = Some(error);
            break;
        }
        self.stand();
    }

    async fn try_begin(&mut self, how: Begin) -> Result<(), Failure> {
        self.unread = Some("the instance is being built again".to_owned());
        let should_have = match how {
            Begin::FromStore => {
                self.has = Inventory::default();
                self.datastore.begin(self.stands).await?;
                if self.stands.is_some() || !self.is_begun {
                    // Not after a trap: writes from before it may still wait for their sync, and so do the answers.
                    self.answers.begin_life(self.datastore.last_entry()).await;
                }
                self.is_begun = true;
                self.stands = None;
                let remembered = self.remembered.inventory().without(self.released.ids());
                self.wanted.with(&remembered)
            }
            Begin::FromRecording => {
                self.datastore.begin_again().await?;
                self.has = Inventory::of_guest(&self.datastore.eni_infos().await?);
                self.wanted.clone()
            }
        };
        // The reading needs all of them: it drops allocations on addresses that no interface has.
        let additions = self.has.additions_to(&should_have);
        self.remembered
            .add(&additions)
            .map_err(|error| Failure::of_host(format!("the interfaces can't be remembered: {error}")))?;
        self.add(&should_have).await?;
        self.read().await?;
        self.datastore.rest().await
    }

    /// Recovers after the instance ended in a call, or after it.
    async fn recover(&mut self, error: String) {
        if self.datastore.is_live() {
            // It gave an invalid answer but is still there.
            tracing::error!(instance = self.settings.instance, "{error}");
            return;
        }
        self.standing.set(Some(error.clone()));
        self.tell(Event::Ended {
            instance: self.name(),
            error,
        });
        self.pause_between_ends().await;
        self.begin(self.after_end).await;
    }

    /// Makes another version active, with the state of the one before.
    async fn hand_over(&mut self, handover: Handover) {
        let Handover {
            instances,
            commit,
            reply,
        } = handover;
        let was_live = self.datastore.is_live();
        let handed_over = self.datastore.hand_over(instances, commit).await;
        if handed_over.is_ok() {
            self.failing.forget();
        }
        // The caller may have disconnected; the version is active all the same.
        let _ = reply.send(handed_over);
        if !self.datastore.is_live() {
            if was_live {
                self.standing.set(Some("the instance is being built again".to_owned()));
            }
            self.begin(Begin::FromStore).await;
        }
    }

    /// Rebuilds the instance after a loss.
    async fn roll_back(&mut self, lost: Lost) {
        let Lost { error, stands } = lost;
        self.standing.set(Some(error.clone()));
        self.tell(Event::RolledBack {
            instance: self.name(),
            error,
            stands,
        });
        self.stands = Some(stands);
        self.datastore.end();
        self.pause_between_ends().await;
        self.begin(Begin::FromStore).await;
    }

    async fn pause_between_ends(&mut self) {
        self.ends = self.ends.saturating_add(1);
        if let Some(times) = self.ends.checked_sub(ENDS_AT_ONCE_MAX).filter(|times| *times > 0) {
            tokio::time::sleep(doubled(ENDED_PAUSE, times, ENDED_PAUSE_MAX)).await;
        }
    }

    /// Makes the guest read its store. Tries again later if that fails.
    async fn read(&mut self) -> Result<(), Failure> {
        self.due.reading = None;
        match self.datastore.read_backing_store().await? {
            Ok(()) => {
                self.unread = None;
                self.datastore.was_read();
                // From here on it reads the store.
                self.after_end = Begin::FromStore;
                self.readings_failed = 0;
                self.downs = 0;
                let stats = self.datastore.stats().await?;
                self.holders.read(self.datastore.allocated().await?);
                self.tell(Event::Read {
                    instance: self.name(),
                    stats,
                });
                self.follow().await?;
                // An earlier instance may have left something to forget.
                self.forget_soon();
                // A reading after a trap does not look at the spool: a release in which the instance ends would loop.
                if self.due.spool.is_none() {
                    self.look_at_spool();
                }
            }
            Err(error) => {
                let error = match error {
                    Error::BackingStore(text) => text,
                    other => protocol::name(&other),
                };
                self.readings_failed = self.readings_failed.saturating_add(1);
                self.due.reading = Some(Instant::now() + READING_RETRY);
                self.tell(Event::ReadingFailed {
                    instance: self.name(),
                    error: error.clone(),
                    again_in_ms: ms(READING_RETRY),
                });
                self.unread = Some(error);
            }
        }
        self.stand();
        Ok(())
    }

    // Requests.

    async fn serve(&mut self, job: Job) {
        let Job { command, pod, reply } = job;
        let known = command.key().and_then(|key| self.holders.pod(key).map(str::to_owned));
        self.datastore.about(pod.clone().or(known));
        let mut freed = Vec::new();
        let mut is_asked = false;
        let answer = match (&self.unread, &command) {
            (Some(why), Command::Add(_) | Command::Del(_) | Command::Check(_) | Command::Gc(_)) => {
                Ok(Err(Refusal::later(format!("the store is not read: {why}"))))
            }
            (_, command) => match self.failing.set_aside(command, &self.datastore) {
                Some(why) => Ok(Err(Refusal::later(why))),
                None => {
                    is_asked = true;
                    self.carry_out(command, &mut freed).await
                }
            },
        };
        self.datastore.about(None);
        let (answer, ended) = match answer {
            Ok(answer) => {
                self.note(&command, &answer, pod.as_deref());
                // A refusal is not an answer of the guest. The end of a pod is counted in `free`.
                if is_asked && !matches!(command, Command::Del(_)) {
                    self.failing.answered(&command, &self.datastore);
                }
                if self.is_serving() {
                    self.ends = 0;
                }
                (answer, None)
            }
            Err(failure) => {
                if !matches!(command, Command::Del(_)) {
                    self.failing.failed(&command, &failure, &self.datastore);
                }
                let error = failure.error;
                let told = format!("the instance gave no answer: {error}");
                (Err(Refusal::later(told)), Some(error))
            }
        };
        self.answers.give(self.datastore.last_entry(), answer, reply);
        match ended {
            Some(error) => self.recover(error).await,
            None => self.after(&freed).await,
        }
    }

    /// Notes what the guest gave, for display.
    fn note(&mut self, command: &Command, answer: &Answer, pod: Option<&str>) {
        let Command::Add(key) = command else { return };
        match answer {
            Ok(Done::Allocation { ip, .. }) => {
                self.holders.assigned(key, ip, pod);
                self.refused_at = None;
            }
            Err(refusal) if refusal.is_exhausted() => self.refused_at = Some(Instant::now()),
            _ => {}
        }
    }

    async fn carry_out(&mut self, command: &Command, freed: &mut Vec<String>) -> Result<Answer, Failure> {
        Ok(match command {
            Command::Add(key) => {
                let assigned = self.datastore.assign(key.clone()).await?;
                assigned.map(Done::from).map_err(protocol::refusal)
            }
            Command::Del(key) => self.free(key.clone(), freed).await?.map(|()| Done::Nothing {}),
            Command::Check(key) => match self.datastore.find(key.clone()).await? {
                Some(found) => Ok(Done::from(found)),
                None => Err(Refusal::new(
                    protocol::code::CONTAINER_UNKNOWN,
                    "the container has no address",
                )),
            },
            Command::Gc(gc) => self.collect(gc, freed).await?,
            Command::Status => match &self.unread {
                None => Ok(Done::Nothing {}),
                Some(why) => Err(Refusal::later(why.clone())),
            },
            Command::Show => Ok(Done::Shown(Box::new(self.show().await?))),
        })
    }

    /// Frees the address of a key. Succeeds too if there is none.
    async fn free(&mut self, key: IpamKey, freed: &mut Vec<String>) -> Result<Result<(), Refusal>, Failure> {
        let command = Command::Del(key.clone());
        if let Some(why) = self.failing.set_aside(&command, &self.datastore) {
            return Ok(Err(Refusal::later(why)));
        }
        let unassigned = self.datastore.unassign(key).await;
        match &unassigned {
            Ok(_) => self.failing.answered(&command, &self.datastore),
            Err(failure) => self.failing.failed(&command, failure, &self.datastore),
        }
        let unassigned = protocol::unassigned(unassigned?);
        Ok(unassigned.map(|assignment| {
            let ip = assignment.map(|assignment| assignment.ip);
            ip.iter().for_each(|ip| self.holders.freed(ip));
            freed.extend(ip);
        }))
    }

    /// Frees what is not in use. A failure does not stop the others; returns the first one.
    async fn collect(&mut self, gc: &Gc, freed: &mut Vec<String>) -> Result<Answer, Failure> {
        let unused = gc.unused(self.datastore.allocated().await?);
        let mut first = None;
        for key in unused {
            let refusal = match self.free(key.clone(), freed).await {
                Ok(Ok(())) => continue,
                Ok(Err(refusal)) => refusal,
                Err(Failure { error, .. }) => {
                    let refusal = Refusal::later(format!("the instance gave no answer: {error}"));
                    self.recover(error).await;
                    refusal
                }
            };
            first.get_or_insert(Refusal {
                code: protocol::code::TRY_AGAIN,
                ..Command::Del(key).refuse(refusal)
            });
            if !self.is_serving() {
                break;
            }
        }
        Ok(first.map_or(Ok(Done::Nothing {}), Err))
    }

    async fn show(&mut self) -> Result<Shown, Failure> {
        let (infos, allocated) = if self.datastore.is_live() {
            (self.datastore.eni_infos().await?, self.datastore.allocated().await?)
        } else {
            let none = EniInfos {
                total_ips: 0,
                assigned_ips: 0,
                enis: Vec::new(),
            };
            (none, Vec::new())
        };
        let has = Inventory::of_guest(&infos);
        let allocated_count = allocated.len();
        let held: Vec<_> = allocated
            .into_iter()
            .filter(|pod| has.place(&pod.ip).is_none())
            .collect();
        Ok(Shown {
            instance: self.name(),
            guest: self.datastore.guest(),
            read: self.unread.is_none(),
            error: self.unread.clone(),
            stats: Stats {
                enis: has.eni_count(),
                addresses: has.address_count(),
                assigned: allocated_count - held.len(),
                held: held.len(),
                free: (has.address_count() + held.len()).saturating_sub(allocated_count),
            },
            cooling_period_ms: self.datastore.cooling_period_ms(),
            enis: infos.enis,
            held,
            released: self.released.ids().iter().cloned().collect(),
            pods: self.holders.pods(),
            missing: self.runtime.is_some().then(|| self.holders.missing(Instant::now())),
        })
    }

    /// Follows a call that freed these addresses, once its answer is on its way.
    async fn after(&mut self, freed: &[String]) {
        let done = self.try_after(freed).await;
        if let Err(Failure { error, .. }) = done {
            self.recover(error).await;
        }
    }

    async fn try_after(&mut self, freed: &[String]) -> Result<(), Failure> {
        let mut has_left = false;
        for ip in freed {
            has_left |= self.remove_freed(ip).await?;
        }
        if has_left {
            // It may have waited to move to another interface.
            self.add(&self.wanted.clone()).await?;
        }
        if !freed.is_empty() && self.settings.warm.is_some() {
            let soon = self.due.last_warm.map_or_else(Instant::now, |last| last + WARM_PAUSE);
            self.due.warm = Some(self.due.warm.map_or(soon, |due| due.min(soon)));
        }
        self.datastore.rest().await
    }

    // What is due.

    async fn do_due(&mut self) {
        if take_due(&mut self.due.begin) {
            self.begin(Begin::FromStore).await;
        }
        let done = self.try_due().await;
        if let Err(Failure { error, .. }) = done {
            self.recover(error).await;
        }
    }

    async fn try_due(&mut self) -> Result<(), Failure> {
        if take_due(&mut self.due.reading) && self.datastore.is_live() {
            self.read().await?;
        }
        if take_due(&mut self.due.spool) {
            self.look_at_spool();
        }
        if take_due(&mut self.due.leaving) {
            self.due.leaving = Some(Instant::now() + LEAVING_PERIOD);
            if self.is_serving() {
                self.follow().await?;
            }
        }
        if take_due(&mut self.due.warm) {
            self.due.warm = Some(Instant::now() + WARM_PERIOD);
            self.due.last_warm = Some(Instant::now());
            self.give_up_unused().await?;
        }
        if take_due(&mut self.due.forget) {
            self.forget_gone().await;
        }
        if take_due(&mut self.due.look) {
            self.due.look = Some(Instant::now() + LOOK_PERIOD);
            self.look_at_runtime();
        }
        if take_due(&mut self.due.sync) {
            self.due.sync = Some(Instant::now() + SYNC_PERIOD);
            self.take_in_look().await;
            self.holders.write(false);
            self.count();
            self.datastore.rest().await?;
        }
        Ok(())
    }

    // For display.

    /// Reports how many addresses there are and any problems with them, when that changes.
    fn count(&mut self) {
        if !self.is_serving() {
            // The problem was already reported.
            return;
        }
        let stats = self.holders.stats(&self.has);
        let mut problems = Vec::new();
        let asked = self.refused_at.is_some_and(|at| at.elapsed() < REFUSED_FOR);
        if stats.free == 0 || asked {
            problems.push(format!(
                "no address is free: {} of {} are assigned{}",
                stats.assigned,
                stats.addresses,
                if stats.free > 0 { ", the others rest" } else { "" }
            ));
        }
        match self.holders.forgotten_count(Instant::now()) {
            0 => {}
            count => problems.push(format!(
                "{count} {} whose containers the container runtime does not know: look with `trueup ipam release`",
                if count == 1 {
                    "address is held"
                } else {
                    "addresses are held"
                }
            )),
        }
        let counted = Some((stats, problems));
        if self.counted == counted {
            return;
        }
        self.counted.clone_from(&counted);
        if let Some((stats, problems)) = counted {
            self.tell(Event::Counted {
                instance: self.name(),
                stats,
                problems,
            });
        }
    }

    /// Asks the container runtime for its sandboxes, in the background.
    fn look_at_runtime(&mut self) {
        let Some(runtime) = self.runtime.clone().filter(|_| self.looking.is_none()) else {
            return;
        };
        self.looking = Some(tokio::spawn(async move { runtime.list_ids().await }));
    }

    /// Compares the holders with what the container runtime listed, if it did.
    async fn take_in_look(&mut self) {
        let Some(looked) = self.looking.take_if(|looking| looking.is_finished()) else {
            return;
        };
        match looked.await {
            Ok(Ok(sandboxes)) => {
                self.holders.compare(&sandboxes, Instant::now());
                self.look_failed = None;
            }
            Ok(Err(error)) => {
                if self.look_failed.as_ref() != Some(&error) {
                    tracing::warn!(
                        instance = self.settings.instance,
                        "addresses are not compared with the container runtime: {error}; trying again"
                    );
                }
                self.look_failed = Some(error);
            }
            Err(error) => tracing::error!("the look at the container runtime ended badly: {error}"),
        }
    }

    // Interfaces.

    /// Takes in the current list.
    fn take_in_enis(&mut self) {
        let enis = self.enis.borrow_and_update().clone();
        let listed: BTreeSet<&str> = enis.enis.iter().map(|eni| eni.id.as_str()).collect();
        if let Err(error) = self.released.keep(|id| listed.contains(id)) {
            tracing::error!(
                instance = self.settings.instance,
                "interfaces that left the list still count as given up: {error}"
            );
        }
        self.wanted = Inventory::wanted(&enis, self.released.ids());
        self.refused.clear();
    }

    async fn follow_list(&mut self) {
        self.take_in_enis();
        if !self.datastore.is_live() {
            return;
        }
        let followed = self.follow().await;
        if let Err(Failure { error, .. }) = followed {
            self.recover(error).await;
        }
    }

    /// Changes the guest's interfaces to the desired ones, as far as no pod uses what is to be removed. Before the
    /// reading it is unknown what pods use, so nothing is removed.
    async fn follow(&mut self) -> Result<(), Failure> {
        if self.unread.is_none() {
            for removal in self.has.removals_to(&self.wanted) {
                self.remove(removal).await?;
            }
        }
        self.add(&self.wanted.clone()).await
    }

    async fn add(&mut self, should_have: &Inventory) -> Result<(), Failure> {
        let mut additions = self.has.additions_to(should_have);
        additions.retain(|addition| match addition {
            Addition::Eni { .. } => true,
            Addition::Address { id, ip } => !self.refused.contains(&(id.clone(), ip.clone())),
        });
        if let Err(error) = self.remembered.add(&additions) {
            tracing::error!(
                instance = self.settings.instance,
                "new interfaces and addresses are not used yet, they can't be remembered: {error}; trying again"
            );
            return Ok(());
        }
        for addition in additions {
            match addition {
                Addition::Eni { id, traits } => match self.datastore.add_eni(&id, traits).await? {
                    Ok(()) => {
                        tracing::debug!(instance = self.settings.instance, eni = id, "interface added");
                        self.has.add_eni(&id, traits);
                    }
                    Err(error) => tracing::warn!(
                        instance = self.settings.instance,
                        eni = id,
                        "the guest does not take the interface: {}",
                        protocol::name(&error)
                    ),
                },
                Addition::Address { id, ip } => self.add_address(id, ip).await?,
            }
        }
        Ok(())
    }

    async fn add_address(&mut self, id: String, ip: String) -> Result<(), Failure> {
        match self.datastore.add_address(&id, &ip).await? {
            Ok(()) => {
                self.has.add_address(&id, &ip);
            }
            Err(error) => {
                tracing::warn!(
                    instance = self.settings.instance,
                    eni = id,
                    address = ip,
                    "the guest does not take the address: {}",
                    protocol::name(&error)
                );
                self.refused.insert((id, ip));
            }
        }
        Ok(())
    }

    /// Never by force: what a pod uses stays, and is tried again.
    async fn remove(&mut self, removal: Removal) -> Result<(), Failure> {
        match removal {
            Removal::Address { id, ip } => self.remove_address(&id, &ip).await,
            Removal::Eni(id) => {
                if self.remove_eni(&id).await? {
                    tracing::info!(
                        instance = self.settings.instance,
                        eni = id,
                        "interface removed: it left the list"
                    );
                    return Ok(());
                }
                self.remove_free(&id).await
            }
            Removal::Replaced(id) => {
                let wanted = self.wanted.traits(&id);
                if self.remove_eni(&id).await? {
                    return Ok(());
                }
                if let Some(wanted) = wanted
                    && self.told.insert(id.clone(), wanted) != Some(wanted)
                {
                    tracing::warn!(
                        instance = self.settings.instance,
                        eni = id,
                        "the interface has another device number or other flags in the list; pods use it, so it is replaced when none does"
                    );
                }
                self.remove_free(&id).await
            }
        }
    }

    /// Removes the free addresses of an interface that is to be removed at once. Otherwise a new pod on it would keep
    /// it for ever.
    async fn remove_free(&mut self, id: &str) -> Result<(), Failure> {
        for ip in self.has.addresses(id) {
            self.remove_address(id, &ip).await?;
        }
        Ok(())
    }

    /// Removes a freed address if it is to be removed, and its interface with it. The cost does not depend on how
    /// many addresses there are: others on the interface are still used, or were removed before. `true` if it was to
    /// be removed.
    async fn remove_freed(&mut self, ip: &str) -> Result<bool, Failure> {
        match self.has.removal_after(ip, &self.wanted) {
            None => return Ok(false),
            Some(Removal::Address { id, ip }) => self.remove_address(&id, &ip).await?,
            Some(Removal::Eni(id) | Removal::Replaced(id)) => {
                if !self.remove_eni(&id).await? {
                    self.remove_address(&id, ip).await?;
                }
            }
        }
        Ok(true)
    }

    /// Forgets what the guest no longer has, once its writes about pods there are durable: after a lost DEL the pod
    /// keeps its address.
    async fn forget_gone(&mut self) {
        self.due.forget = None;
        // It is due again after the next reading.
        if !self.is_serving() || self.remembered.inventory() == &self.has {
            return;
        }
        // If this fails, the instance is begun again, with everything remembered.
        let settled = self.answers.settle(self.datastore.last_entry()).await;
        let forgot = settled.and_then(|()| {
            let forgot = self.remembered.forget_all_but(&self.has);
            forgot.map_err(|error| error.to_string())
        });
        if let Err(error) = forgot {
            self.due.forget = Some(Instant::now() + FORGET_RETRY);
            tracing::warn!(
                instance = self.settings.instance,
                "interfaces and addresses that are gone are still remembered: {error}"
            );
        }
    }

    /// Something left the guest.
    fn forget_soon(&mut self) {
        self.due.forget.get_or_insert_with(|| Instant::now() + FORGET_PAUSE);
    }

    /// `false` if pods use it.
    async fn remove_eni(&mut self, id: &str) -> Result<bool, Failure> {
        match self.datastore.remove_eni(id).await? {
            Ok(()) | Err(Error::UnknownEni) => {
                self.has.remove_eni(id);
                self.told.remove(id);
                self.forget_soon();
                Ok(true)
            }
            Err(Error::EniInUse) => Ok(false),
            Err(error) => {
                let error = protocol::name(&error);
                tracing::warn!(
                    instance = self.settings.instance,
                    eni = id,
                    "the interface stays: {error}"
                );
                Ok(false)
            }
        }
    }

    async fn remove_address(&mut self, id: &str, ip: &str) -> Result<(), Failure> {
        match self.datastore.del_address(id, ip).await? {
            Ok(()) | Err(Error::UnknownIp | Error::UnknownEni) => {
                self.has.remove_address(ip);
                self.forget_soon();
            }
            Err(Error::IpInUse) => {}
            Err(error) => {
                let error = protocol::name(&error);
                tracing::warn!(
                    instance = self.settings.instance,
                    address = ip,
                    "the address stays: {error}"
                );
            }
        }
        Ok(())
    }

    /// Gives up interfaces that are not needed, each on disk before the next. Otherwise the operator might detach one
    /// that a pod still uses, because the release of its address was lost.
    async fn give_up_unused(&mut self) -> Result<(), Failure> {
        let Some(targets) = self.settings.warm.filter(|_| self.is_serving()) else {
            return Ok(());
        };
        while let Some(id) = self.datastore.remove_unused(targets).await? {
            self.has.remove_eni(&id);
            self.forget_soon();
            if !self.wanted.has_eni(&id) {
                // It was already to be removed.
                continue;
            }
            let settled = self.answers.settle(self.datastore.last_entry()).await;
            let given_up = settled.and_then(|()| self.released.add(&id).map_err(|error| error.to_string()));
            if let Err(error) = given_up {
                tracing::error!(
                    instance = self.settings.instance,
                    eni = id,
                    "an unused interface is not given up: {error}"
                );
                return self.follow().await;
            }
            self.wanted.remove_eni(&id);
            self.tell(Event::Released {
                instance: self.name(),
                eni: id,
            });
        }
        Ok(())
    }

    // The spool.

    fn look_at_spool(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        self.due.spool = Some(Instant::now() + SPOOL_PERIOD);
        if self.unread.is_none() && self.releases.is_empty() {
            let whose = Whose {
                instance: &self.settings.instance,
                all: &self.all,
            };
            self.worked_off = Worked::default();
            self.releases = spool.releases(whose).into();
        }
    }

    fn has_releases(&self) -> bool {
        self.is_serving() && !self.releases.is_empty()
    }

    /// Works off some releases in this turn. No other call comes between a release, its sync and the removal of its
    /// file.
    async fn work_off_some(&mut self) {
        if !self.has_releases() {
            return;
        }
        let some = self.releases.len().min(SPOOL_AT_ONCE_MAX);
        let some: Vec<Release> = self.releases.drain(..some).collect();
        let (mut files, mut freed, mut ended) = (Vec::new(), Vec::new(), None);
        for release in some {
            // The file was taken back: the pod's key is in use again.
            if !release.is_there() {
                continue;
            }
            let worked_off = match &ended {
                None => self.free(release.key, &mut freed).await,
                Some(_) => Ok(Err(Refusal::later("the instance ended"))),
            };
            match worked_off {
                Ok(Ok(())) => files.push(release.file),
                Ok(Err(refusal)) => self.keep_release(&release.file, &refusal.msg),
                Err(Failure { error, .. }) => {
                    self.keep_release(&release.file, &error);
                    ended = Some(error);
                }
            }
        }
        self.remove_releases(&files).await;
        match ended {
            Some(error) => self.recover(error).await,
            None => self.after(&freed).await,
        }
        let worked_off = self.worked_off;
        if self.releases.is_empty() && worked_off != Worked::default() {
            self.tell(Event::Spool {
                instance: self.name(),
                done: worked_off.done,
                kept: worked_off.kept,
            });
        }
    }

    fn keep_release(&mut self, file: &std::path::Path, why: &str) {
        self.worked_off.kept += 1;
        tracing::warn!(
            instance = self.settings.instance,
            "the release `{}` could not be worked off, and is tried again: {why}",
            file.display()
        );
    }

    async fn remove_releases(&mut self, files: &[std::path::PathBuf]) {
        if files.is_empty() {
            return;
        }
        let settled = self.answers.settle(self.datastore.last_entry()).await;
        let removed = match (settled, &self.spool) {
            (Ok(()), Some(spool)) => spool.remove(files).map_err(|error| error.to_string()),
            (Ok(()), None) => Ok(()),
            (Err(error), _) => Err(error),
        };
        match removed {
            Ok(()) => self.worked_off.done += files.len(),
            Err(error) => {
                self.worked_off.kept += files.len();
                tracing::warn!(
                    instance = self.settings.instance,
                    "{} releases stay in the spool: {error}",
                    files.len()
                );
            }
        }
    }
}

/// `first`, doubled with each of `times` after the first, up to `max`.
fn doubled(first: Duration, times: u32, max: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(max)
}

fn ms(pause: Duration) -> Option<u64> {
    u64::try_from(pause.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses =
            [1, 2, 3, 7, 8, 40, u32::MAX].map(|times| doubled(ENDED_PAUSE, times, ENDED_PAUSE_MAX).as_millis());
        assert_eq!(pauses, [10, 20, 40, 640, 1000, 1000, 1000]);
    }
}
