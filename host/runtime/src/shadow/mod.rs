//! Shadow: a candidate decides beside the active guest, and nothing of what it decides is done.
//!
//! It gets every call of the active guest with the answers that the active guest got, and is compared with what that one
//! asked and returned. It works on a thread of its own, behind a bounded queue: what it can't keep up with is not compared,
//! and nobody waits for it. Which guest is active, and when a candidate takes its place, is decided elsewhere.
//!
//! ```text
//! active instance --tape's tap--> observe --queue--> candidate's instance of that key --> same | different | unrecorded
//!                                    |                                 \--> folder/<n>-<key>.jsonl, summary.json, metrics
//!                                    +--> skipped: the queue is full, the key's state is not known, another version was called
//! ```
//!
//! A candidate starts from a snapshot of the active guest and then keeps a state of its own, as long as it is the same. After a
//! difference it goes on from where the active guest is: that state is had by repeating the active guest's calls, here,
//! so that no later call goes uncompared, and the active guest is not asked for more snapshots.

mod begun;
mod job;
mod kept;
mod rate;
mod status;
mod twin;
mod worker;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{Notify, oneshot, watch};
use trueup_capabilities::meter::Limits;
use trueup_capabilities::metrics::Registry;
use trueup_engine::{Digest, Engine};
use trueup_journal::Entry;

pub use self::kept::{KEPT_AT_ONCE_MAX, KEPT_BYTES_MAX, KEPT_FILES_MAX, KEPT_PER_SECOND_MAX, SUMMARY, SUMMARY_EVERY};
pub use self::status::{Difference, LAST_MAX, Status, Verdict};
pub use self::twin::{CPU_MORE_MAX, HISTORY_BYTES_MAX};
pub use self::worker::KEYS_MAX;

pub(crate) use self::begun::fired;
use self::job::Job;
use self::rate::Rate;
use crate::guests::Program;
use crate::replay::Compare;

/// So many calls wait for a candidate at most: five seconds of 200 changes a second.
pub const QUEUE_CALLS_MAX: usize = 1_000;

/// The calls that wait hold so many bytes at most, with the states handed over. One call has up to 16 MiB.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;

/// So many states are asked for at once: each key that has an instance of the candidate may begin anew once, and room.
pub const STATES_AT_ONCE_MAX: u32 = 128;

/// And then so many a second. Each is a snapshot that the active guest makes before a call, which takes as long as a call:
/// where more keys take turns than the candidate has instances for, the active guest must not make one for each call.
pub const STATES_PER_SECOND_MAX: u32 = 10;

/// A version of a guest, as it is configured.
#[derive(Clone)]
pub struct Version {
    /// The guest.
    pub program: Arc<Program>,
    /// For `lifecycle.init`.
    pub settings: Value,
    /// What it may use.
    pub limits: Limits,
}

/// How a candidate is compared.
#[derive(Debug, Clone, Copy, Default)]
pub struct How {
    /// What is compared.
    pub compare: Compare,
    /// The candidate begins without the active guest's state.
    pub afresh: bool,
}

/// Who is compared with whom, and where what is found goes.
pub struct Setup {
    /// Runs both.
    pub engine: Engine,
    /// The name that the guest has in configuration and metrics.
    pub name: String,
    /// Whose calls are observed. After a swap there is another, and this shadow is to be stopped.
    pub active: Version,
    /// Who decides beside it.
    pub candidate: Version,
    /// How it is compared.
    pub how: How,
    /// Takes differences and the summary; created where there is none. What an earlier shadow kept there stays, as
    /// long as it is among the newest.
    pub folder: PathBuf,
    /// Counts calls by verdict: `trueup_shadow_calls_total`.
    pub metrics: Arc<Registry>,
}

/// One call of the active guest, or several in order: what the tape's tap has after it.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The instance's key.
    pub key: String,
    /// The guest that was called: what is not the active version's is not compared.
    pub digest: Digest,
    /// The active instance's snapshot before these entries, where [`Shadow::interest`] asked for it.
    pub state: Option<String>,
    /// What the active instance was given in `init`, where its state is told: an adapter may give each key settings of its
    /// own. None: it is not known, and taken for what is configured.
    pub settings: Option<Value>,
    /// The timers that waited before these entries, where its state is told: when each is due, and its id. One that these
    /// entries tell of is among them.
    pub timers: Vec<(u64, u64)>,
    /// From `Tape::take_entries`. Empty where the tap gave up a call that was too long: it counts as skipped.
    pub entries: Vec<Entry>,
    /// How long the active guest took in wall-clock time: the candidate gets [`CPU_MORE_MAX`] more, up to its `cpu_ms`.
    pub took: Duration,
}

/// What a shadow wants of the next call of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Nothing: it could not be compared. Say that it was made, with [`Shadow::pass_over`].
    Nothing,
    /// The call.
    Call,
    /// The active instance's snapshot, and then the call. So it is for the first call of a key, after one that was skipped or
    /// ended without a result, and for a key that was let go for others.
    StateAndCall,
}

/// A candidate at work. Dropped, it stops.
pub struct Shadow {
    shared: Arc<Shared>,
    same_in_a_row: watch::Receiver<u64>,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

/// What the caller and the candidate's thread share.
struct Shared {
    book: Mutex<Book>,
    /// There is something in the queue.
    queued: Notify,
    /// Counts jobs that are done.
    done: watch::Sender<u64>,
    metrics: Arc<Registry>,
    name: String,
    /// Whose calls are compared.
    active: Digest,
}

struct Book {
    status: Status,
    queue: VecDeque<Job>,
    queue_bytes: usize,
    /// Keys whose state the candidate's thread has, or will have when it comes to the end of the queue.
    known: BTreeSet<String>,
    /// Keys whose state can't be had: to ask again would cost the active guest another instance.
    without_state: BTreeSet<String>,
    /// States that were told.
    states: Rate,
    /// The queue was full: no state is asked for until half of it is free, or each place that comes free would cost one.
    was_full: bool,
}

impl Shadow {
    /// Has the candidate accept its settings, and begins.
    ///
    /// # Errors
    /// One line: the candidate is of another world, or refuses its settings; the folder can't be written.
    pub async fn start(setup: Setup) -> Result<Self, String> {
        let (active, candidate) = (&setup.active.program, &setup.candidate.program);
        if active.world.name != candidate.world.name {
            return Err(format!(
                "guest `{}@{}` is of the world {}, must be of {}, as the active `{}@{}` is",
                candidate.guest.name,
                candidate.guest.version,
                candidate.world.name,
                active.world.name,
                active.guest.name,
                active.guest.version
            ));
        }
        let (count_same, same_in_a_row) = watch::channel(0);
        let shared = Arc::new(Shared {
            book: Mutex::new(Book {
                status: Status::begin(&candidate.guest),
                queue: VecDeque::new(),
                queue_bytes: 0,
                known: BTreeSet::new(),
                without_state: BTreeSet::new(),
                states: Rate::new(STATES_AT_ONCE_MAX, STATES_PER_SECOND_MAX),
                was_full: false,
            }),
            queued: Notify::new(),
            done: watch::Sender::new(0),
            metrics: Arc::clone(&setup.metrics),
            name: setup.name.clone(),
            active: active.guest.digest,
        });
        let (stop, stopped) = oneshot::channel();
        let (told_begun, begun) = oneshot::channel();
        let (told_ended, ended) = oneshot::channel();
        let of_worker = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("shadow".to_owned())
            .spawn(move || {
                worker::run(setup, of_worker, count_same, stopped, told_begun);
                // Where nobody waits for the end, nobody needs to know.
                let _ = told_ended.send(());
            })
            .map_err(|error| format!("no thread for a candidate in shadow: {error}"))?;
        begun
            .await
            .unwrap_or_else(|_| Err("the candidate's thread ended before it began".to_owned()))?;
        Ok(Self {
            shared,
            same_in_a_row,
            stop,
            ended,
        })
    }

    /// What it wants of the next call of this key, made by the guest of this digest.
    pub fn interest(&self, key: &str, digest: &Digest) -> Interest {
        if *digest != self.shared.active {
            return Interest::Nothing;
        }
        let mut book = self.shared.book();
        book.was_full |= book.is_full();
        if book.known.contains(key) {
            // What does not fit is not worth the trouble of keeping it for us.
            return match book.is_full() {
                true => Interest::Nothing,
                false => Interest::Call,
            };
        }
        let may_ask = !book.was_full && !book.without_state.contains(key) && book.states.has(Instant::now());
        if may_ask {
            Interest::StateAndCall
        } else {
            Interest::Nothing
        }
    }

    /// Counts a call that was made and not observed, since [`Shadow::interest`] did not want it.
    pub fn pass_over(&self, key: &str) {
        let mut book = self.shared.book();
        book.known.remove(key);
        self.shared.skip(&mut book, 1);
    }

    /// The active instance's state can't be had: this key is not observed any more.
    pub fn has_no_state(&self, key: &str) {
        self.shared.book().without_state.insert(key.to_owned());
    }

    /// Takes what the active guest did. Never waits for the candidate: what does not fit the queue is skipped.
    pub fn observe(&self, observed: Observed) {
        let key = observed.key.clone();
        if observed.state.is_some() {
            self.shared.book().states.take(Instant::now());
        }
        if observed.digest != self.shared.active {
            return self.pass_over(&key);
        }
        let Some(jobs) = job::split(observed) else {
            return self.pass_over(&key);
        };
        let mut book = self.shared.book();
        for job in jobs {
            self.shared.take(&mut book, job);
        }
    }

    /// What was found so far.
    pub fn status(&self) -> Status {
        self.shared.book().status.clone()
    }

    /// How many calls were the same since the last that was not; closed where the shadow has ended.
    pub fn same_in_a_row(&self) -> watch::Receiver<u64> {
        self.same_in_a_row.clone()
    }

    /// Waits until everything observed so far is compared or skipped.
    pub async fn settled(&self) {
        let mut done = self.shared.done.subscribe();
        while self.shared.book().status.waiting > 0 {
            if done.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends the candidate, in the middle of a call if need be. Calls that still wait are skipped.
    pub async fn stop(self) -> Status {
        let Self {
            shared, stop, ended, ..
        } = self;
        // Where the thread has ended already, there is nothing to stop.
        let _ = stop.send(());
        let _ = ended.await;
        shared.book().status.clone()
    }
}

impl Book {
    fn is_full(&self) -> bool {
        self.queue.len() >= QUEUE_CALLS_MAX || self.queue_bytes >= QUEUE_BYTES_MAX
    }

    /// Something was taken out of the queue.
    fn drained(&mut self) {
        if self.queue.len() <= QUEUE_CALLS_MAX / 2 && self.queue_bytes <= QUEUE_BYTES_MAX / 2 {
            self.was_full = false;
        }
    }

    /// The candidate's thread has no state of this key any more, unless one is on its way.
    fn forget(&mut self, key: &str) {
        let on_its_way = |job: &Job| job.key == key && job.begin.is_some();
        if !self.queue.iter().any(on_its_way) {
            self.known.remove(key);
        }
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, book: &mut Book, job: Job) {
        let bytes = job.bytes();
        let known = job.begin.is_some() || book.known.contains(&job.key);
        let fits = book.queue.len() < QUEUE_CALLS_MAX && book.queue_bytes.saturating_add(bytes) <= QUEUE_BYTES_MAX;
        // One call may be too long for an empty queue: then there is nothing to wait for.
        book.was_full |= !fits && !book.queue.is_empty();
        if !(known && fits) {
            book.known.remove(&job.key);
            return self.skip(book, u64::from(!job.call.is_empty()));
        }
        if job.ends_instance() {
            // The next one is rebuilt from an earlier state.
            book.known.remove(&job.key);
        } else {
            book.known.insert(job.key.clone());
        }
        book.queue_bytes += bytes;
        book.queue.push_back(job);
        book.status.waiting += 1;
        self.queued.notify_one();
    }

    /// Counts calls that are not compared.
    fn skip(&self, book: &mut Book, calls: u64) {
        book.status.skipped += calls;
        self.count(Verdict::Skipped, calls);
    }

    fn count(&self, verdict: Verdict, calls: u64) {
        status::count(&self.metrics, &self.name, verdict, calls);
    }
}
