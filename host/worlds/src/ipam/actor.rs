//! One instance: makes its calls one after another, applies changes to it, and rebuilds it.
//!
//! ```text
//! start:   begin -> interfaces, remembered and listed -> read the store -> spool -> requests
//! a trap:  as at the start, without the spool
//! a loss:  begin from what is durable, as at the start
//! ```
//! The store is authoritative, never the recording, which may lag behind the store after a crash or a trap.
//!
//! Answers wait for their sync in `durability.rs`, and the actor goes on meanwhile. The actor itself waits only if
//! something must be durable before a file changes: a release before it leaves the spool, an interface that is given
//! up before its event, an address that left before it is forgotten; and for the file of what the guest gets.

mod beginning;
mod calls;
mod interfaces;
mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use trueup_base::text::counted;
use trueup_config::IpamAdapter as Settings;
use trueup_sources::enis::Enis;
use trueup_work::lifecycle::failure::Failure;
use trueup_work::setup::SetupError;
use trueup_work::slot::InstanceSlot;
use trueup_work::status::pods::{Event, Stats};

use super::durability::Answers;
use super::enis::{Addition, Inventory};
use super::guest::AddEni;
use super::holders::Holders;
use super::protocol::{Answer, Command};
use super::spool::{Release, Spool};
use super::state_file::{Released, Remembered};
use super::{ManagedGuest, Serving};

/// The pause before a failed reading of the store is tried again.
pub const READING_RETRY: Duration = Duration::from_secs(5);

/// [`super::once`] gives up after this many failed readings, as for the keys of other guests.
pub const READINGS_MAX_ONCE: u32 = trueup_work::lifecycle::failure_counts::FAILURES_MAX_ONCE;

/// The result of [`super::once`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The instance.
    pub instance: String,
    /// The counts at the end.
    pub stats: Stats,
    /// Releases of the spool that were worked off.
    pub released: usize,
    /// Why the store is not read, or a release failed. `None` if everything is done.
    pub error: Option<String>,
}

/// How often the actor tries again to remove what left the list of interfaces, if no pod's end triggered that.
const LEAVING_PERIOD: Duration = Duration::from_secs(30);

/// How often the actor looks for unused interfaces. By default an interface is young for 60 s and an address rests
/// for 30 s.
const WARM_PERIOD: Duration = Duration::from_secs(30);

/// How often the recording is checked for a sync to disk.
const SYNC_PERIOD: Duration = Duration::from_secs(1);

/// How often the actor asks the container runtime for its sandboxes.
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// A pod that got no address asks again within this time, as kubelet does.
const REFUSED_FOR: Duration = Duration::from_secs(120);

/// A request to the instance, and the channel for its answer.
pub(super) struct Mail {
    pub(super) command: Command,
    /// `namespace/name`, if it is known.
    pub(super) pod: Option<String>,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// A running instance.
pub(super) struct Actor {
    settings: Settings,
    /// The guest's instance, or its place while there is none.
    slot: InstanceSlot,
    was_read: bool,
    /// The pod, `namespace/name`, that the current request is about: recording and traces name it, and the guest does
    /// not get it.
    pod: Option<String>,
    answers: Answers,
    enis: watch::Receiver<Enis>,
    /// What the guest should have.
    wanted: Inventory,
    /// What the guest has.
    has: Inventory,
    /// Addresses that the guest refused. They are not tried again until the list changes.
    refused: Vec<Addition>,
    /// Interfaces whose changed traits were reported.
    reported: BTreeMap<String, AddEni>,
    released: Released,
    /// At least what the guest got: pods may use what left the list, and a reading drops allocations that no
    /// interface has.
    remembered: Remembered,
    spool: Option<Spool>,
    /// Releases that wait for their turn.
    releases: VecDeque<Release>,
    /// How many of them succeeded and failed since they were listed.
    worked_off: Worked,
    /// Why the store is not read. `None` if it is.
    unread: Option<String>,
    /// Whether an instance was begun in this process.
    is_begun: bool,
    /// The store lost what it had stored with later entries than this, and the instance was not begun since.
    valid_entry: Option<u64>,
    /// Readings in a row that failed.
    readings_failed: u32,
    /// Calls in a row in which the instance ended.
    ends: u32,
    /// Failed tries in a row to begin it.
    downs: u32,
    due: BTreeMap<Task, Instant>,
    /// When the actor last looked for unused interfaces.
    last_warm: Option<Instant>,
    /// Why the instance serves no pods. `None` if it does. STATUS reads it without waiting in the queue.
    pub(super) not_serving: watch::Sender<Option<String>>,
    events: mpsc::UnboundedSender<Event>,
    managed: ManagedGuest,
    holders: Holders,
    /// What was last reported about them.
    counted: Option<(Stats, Vec<String>)>,
    /// When a pod last asked for an address and none was free.
    refused_at: Option<Instant>,
    /// Why the store did not take the last change. `None` if it did.
    unstored: Option<String>,
    /// The current look at the container runtime.
    looking: Option<JoinHandle<Result<BTreeSet<String>, String>>>,
    /// Why the last look failed. Logged once.
    look_failed: Option<String>,
}

/// What is due at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Begin,
    Reading,
    Spool,
    Leaving,
    Warm,
    Forget,
    Sync,
    Look,
}

/// The result of working off the spool.
#[derive(Clone, Copy, Default)]
struct Worked {
    done: usize,
    kept: usize,
}

/// Which interfaces the guest released, and at least what it got. In a plan, changes stay in memory.
///
/// # Errors
/// If one of them can't be read.
pub(super) fn open_state(ipam: &Settings, state_dir: &Path, plans: bool) -> Result<(Released, Remembered), SetupError> {
    let released = Released::load(&ipam.released_file, plans).map_err(SetupError::Misused)?;
    let remembered = Remembered::path(state_dir, &ipam.instance);
    let remembered = Remembered::load(remembered, plans, released.ids()).map_err(SetupError::Misused)?;
    Ok((released, remembered))
}

impl Actor {
    /// An instance that is not begun. Must be called inside a runtime.
    ///
    /// # Errors
    /// If the file of released interfaces, or that of interfaces that pods may use, can't be used.
    pub(super) fn new(of: Serving, events: mpsc::UnboundedSender<Event>) -> Result<Self, SetupError> {
        let settings = of.settings;
        let managed = of.managed;
        let version = managed.active.instances();
        let plans = managed.active.plan.is_some();
        let (released, remembered) = open_state(&settings, &version.state_dir, plans)?;
        let spool = settings.spool_dir.as_deref().map(|dir| Spool::new(dir, plans));
        let holders = Holders::new(&version.state_dir, &settings.instance, plans);
        let answers = Answers::new(of.backends.checkpoint.clone());
        let slot = InstanceSlot::new(Arc::clone(&managed.active), &settings.instance, of.backends);
        Ok(Self {
            settings,
            slot,
            was_read: false,
            pod: None,
            answers,
            enis: of.enis,
            wanted: Inventory::default(),
            has: Inventory::default(),
            refused: Vec::new(),
            reported: BTreeMap::new(),
            released,
            remembered,
            spool,
            releases: VecDeque::new(),
            worked_off: Worked::default(),
            unread: Some("it was not read yet".to_owned()),
            is_begun: false,
            valid_entry: None,
            readings_failed: 0,
            ends: 0,
            downs: 0,
            due: BTreeMap::new(),
            last_warm: None,
            not_serving: watch::Sender::new(Some("the instance is being brought up".to_owned())),
            events,
            managed,
            holders,
            counted: None,
            refused_at: None,
            unstored: None,
            looking: None,
            look_failed: None,
        })
    }

    /// Brings the instance up: its interfaces, the first reading, and the spool if that succeeded.
    pub(super) async fn start(&mut self) {
        let now = Instant::now();
        self.due.insert(Task::Sync, now + SYNC_PERIOD);
        self.due.insert(Task::Leaving, now + LEAVING_PERIOD);
        let warm = self.settings.warm.map(|_| (Task::Warm, now + WARM_PERIOD));
        let look = self.managed.runtime.as_ref().map(|_| (Task::Look, now));
        self.due.extend(warm.into_iter().chain(look));
        self.take_in_enis();
        self.begin().await;
        while self.has_releases() {
            self.work_off_some().await;
        }
    }

    /// Serves until all senders of requests are gone, then gives out the last answers.
    pub(super) async fn run(mut self, mut mailbox: mpsc::Receiver<Mail>) {
        let mut is_watched = true;
        loop {
            let due = self.next_due();
            let has_releases = self.has_releases();
            tokio::select! {
                biased;
                Some(lost) = self.answers.lost.recv() => self.roll_back(lost).await,
                changed = self.enis.changed(), if is_watched => {
                    is_watched = changed.is_ok();
                    self.follow_list().await;
                }
                () = sleep_until(due) => self.do_due().await,
                Some(handover) = self.managed.handovers.recv() => self.hand_over(handover).await,
                mail = mailbox.recv() => match mail {
                    Some(mail) => self.serve(mail).await,
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
        let mut error = loop {
            if self.unread.is_none() || self.readings_failed.max(self.downs) >= READINGS_MAX_ONCE {
                break self.unread.clone();
            }
            tokio::select! {
                biased;
                () = &mut stop => break Some("stopped before its end".to_owned()),
                () = sleep_until(self.next_due()) => self.do_due().await,
            }
            while self.has_releases() {
                self.work_off_some().await;
            }
        };
        let Worked { done, kept } = self.worked_off;
        if error.is_none() && kept > 0 {
            error = Some(format!("{kept} releases of the spool could not be worked off"));
        }
        let stats = self.stats().await.unwrap_or_else(|failure| {
            error.get_or_insert(failure.error);
            Stats::default()
        });
        if let Err(why) = self.answers.settle(self.last_entry()).await {
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
        if self.due.contains_key(&Task::Forget) {
            self.forget_gone().await;
        }
        self.holders.write(true);
        self.slot.sync();
        self.answers.end().await;
    }

    fn next_due(&self) -> Instant {
        // The sync is always due at some time.
        let next = self.due.values().min().copied();
        next.unwrap_or_else(|| Instant::now() + SYNC_PERIOD)
    }

    /// Takes the task if it is due.
    fn take_due(&mut self, task: Task) -> bool {
        let is_due = self.due.get(&task).is_some_and(|at| *at <= Instant::now());
        is_due && self.due.remove(&task).is_some()
    }

    fn report(&self, event: impl FnOnce(String) -> Event) {
        // The receiver may be gone.
        let _ = self.events.send(event(self.settings.instance.clone()));
    }

    /// Waits until everything written so far is durable, and then changes a file.
    async fn settled(&mut self, change: impl FnOnce(&mut Self) -> io::Result<()>) -> Result<(), String> {
        self.answers.settle(self.last_entry()).await?;
        change(self).map_err(|error| error.to_string())
    }

    fn is_serving(&self) -> bool {
        self.unread.is_none() && self.slot.is_live()
    }

    async fn do_due(&mut self) {
        if self.take_due(Task::Begin) {
            self.begin().await;
        }
        if let Err(Failure { error, .. }) = self.try_due().await {
            self.recover(error).await;
        }
    }

    async fn try_due(&mut self) -> Result<(), Failure> {
        if self.take_due(Task::Reading) && self.slot.is_live() {
            self.read().await?;
        }
        if self.take_due(Task::Spool) {
            self.look_at_spool();
        }
        if self.take_due(Task::Leaving) {
            self.due.insert(Task::Leaving, Instant::now() + LEAVING_PERIOD);
            if self.is_serving() {
                self.follow().await?;
            }
        }
        if self.take_due(Task::Warm) {
            self.due.insert(Task::Warm, Instant::now() + WARM_PERIOD);
            self.last_warm = Some(Instant::now());
            self.give_up_unused().await?;
        }
        if self.take_due(Task::Forget) {
            self.forget_gone().await;
        }
        if self.take_due(Task::Look) {
            self.due.insert(Task::Look, Instant::now() + LOOK_PERIOD);
            // Asks in the background.
            if let Some(runtime) = self.managed.runtime.clone().filter(|_| self.looking.is_none()) {
                self.looking = Some(tokio::spawn(async move { runtime.list_ids().await }));
            }
        }
        if self.take_due(Task::Sync) {
            self.due.insert(Task::Sync, Instant::now() + SYNC_PERIOD);
            self.take_in_look().await;
            self.holders.write(false);
            self.count();
            self.rest().await?;
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
        let rest_ms = self.cooling_period_ms();
        let stats = self.holders.stats(&self.has, rest_ms, Instant::now());
        let mut problems = Vec::new();
        let before = self.counted.as_ref();
        if before.is_some_and(|(before, _)| stats.free > before.free) {
            // A pod that asks now gets it.
            self.refused_at = None;
        }
        // An address of an earlier process may rest.
        let refused_for = REFUSED_FOR.min(Duration::from_millis(rest_ms));
        let asked = self.refused_at.is_some_and(|at| at.elapsed() < refused_for);
        if stats.free == 0 || asked {
            let assigned = stats.assigned;
            let addresses = stats.addresses;
            let rest = if addresses > assigned { ", the others rest" } else { "" };
            problems.push(format!(
                "no address is free: {assigned} of {addresses} are assigned{rest}"
            ));
        }
        let unstored = self.unstored.as_ref();
        problems.extend(unstored.map(|why| format!("the store did not take the last change: {why}")));
        let count = self.holders.forgotten_count(Instant::now());
        if count > 0 {
            let held = counted(count, "address is held", "addresses are held");
            problems.push(format!(
                "{held} whose containers the container runtime does not know: look with `trueup ipam release`"
            ));
        }
        let counted = Some((stats, problems.clone()));
        if self.counted != counted {
            self.counted = counted;
            self.report(|instance| Event::Counted {
                instance,
                stats,
                problems,
            });
        }
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
                let instance = &self.settings.instance;
                if self.look_failed.as_ref() != Some(&error) {
                    let what = "addresses are not compared with the container runtime";
                    tracing::warn!(instance, "{what}: {error}; trying again");
                }
                self.look_failed = Some(error);
            }
            Err(error) => tracing::error!("the look at the container runtime ended badly: {error}"),
        }
    }
}
