//! Shadow: a candidate decides beside the active guest, without any effect.
//!
//! It follows the recordings of the active guest: it makes every call in them, gets the recorded answers, and its
//! requests and results are compared with the recorded ones. It works on a thread of its own, behind a bounded queue.
//! The shadow skips what it can't keep up with, and never blocks the active guest. Other code decides which guest is
//! active, and when a candidate replaces it.
//!
//! ```text
//! call of the active guest --entry--> observe --queue--> candidate's instance of that key
//!   \--> recording ---------------------------------------^   |
//!                                                             +--> same | different | unrecorded: folder, metrics
//! ```
//!
//! A candidate starts from a state of the active guest and then keeps a state of its own while it decides the same.
//! After a difference it continues from the active guest's state. The shadow computes that state by repeating the
//! recorded calls, so that it compares every later call, and asks the active guest for nothing.

mod candidate;
mod kept;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::metrics::Registry;
use trueup_engine::Digest;
use trueup_instance::Instances;
use trueup_instance::replay::Compare;

use self::candidate::CandidateInstance;
use self::kept::Kept;
use crate::load::named;

pub use self::candidate::CPU_MORE_MAX;
pub use self::kept::{KEPT_AT_ONCE_MAX, KEPT_BYTES_MAX, KEPT_FILES_MAX, KEPT_PER_SECOND_MAX};

/// The maximum number of calls that wait for a candidate: five seconds of 200 changes a second.
pub const QUEUE_CALLS_MAX: usize = 1_000;

/// The maximum number of keys for which the candidate has instances. Above it, drops the one that was not called for
/// the longest. All guests share the engine's pool of instances, and the active guest must not lack room.
pub const KEYS_MAX: usize = 64;

/// The versions to compare, and where the results go.
pub struct Setup {
    /// The version whose calls are compared. After a swap another one is active, and the owner must stop this shadow.
    pub active: Instances,
    /// The version that decides beside it.
    pub candidate: Instances,
    /// What is compared.
    pub compare: Compare,
    /// The folder for differences. Created if it is missing. Keeps what an earlier shadow left there while it is among
    /// the newest.
    pub folder: PathBuf,
    /// Counts calls by verdict: `trueup_shadow_calls_total`.
    pub metrics: Arc<Registry>,
}

/// A running candidate. Dropping it stops the candidate, even in the middle of a call.
pub struct Shadow {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    /// The version whose calls are compared.
    active: Digest,
    _stop: oneshot::Sender<()>,
}

/// A call for the candidate to make.
struct Job {
    key: String,
    /// The number of its entry in the recording of the key.
    n: u64,
    /// How long the active guest took in wall-clock time.
    took: Duration,
}

impl Job {
    fn difference(&self, verdict: Verdict, n: Option<u64>, what: String) -> Difference {
        Difference {
            key: self.key.clone(),
            verdict,
            n,
            what,
            file: None,
        }
    }
}

/// What the caller and the candidate's thread share.
struct Shared {
    status: watch::Sender<Status>,
    metrics: Arc<Registry>,
    name: &'static str,
}

impl Shadow {
    /// Has the candidate accept its settings, and starts.
    ///
    /// # Errors
    /// One line: the candidate is of another world or refuses its settings, or the folder can't be written.
    pub async fn start(setup: Setup) -> Result<Self, String> {
        let (active, candidate) = (&setup.active.program, &setup.candidate.program);
        if active.world.name != candidate.world.name {
            let guest = named(&candidate.guest);
            let world = candidate.world.name;
            let must_be = format!("{}, as the active `{}` is", active.world.name, named(&active.guest));
            return Err(format!("guest `{guest}` is of the world {world}, must be of {must_be}"));
        }
        let digest = active.guest.digest;
        let status = Status {
            candidate: candidate.guest.name.clone(),
            version: candidate.guest.version.clone(),
            digest: candidate.guest.digest.to_string(),
            since_ms: SystemClock.now_ms(),
            ..Status::default()
        };
        let shared = Arc::new(Shared {
            status: watch::Sender::new(status),
            metrics: Arc::clone(&setup.metrics),
            name: setup.active.name,
        });
        let (jobs, queue) = mpsc::channel(QUEUE_CALLS_MAX);
        let (stop, stopped) = oneshot::channel::<()>();
        let (begun_reply, begun) = oneshot::channel();
        let of_worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("shadow".to_owned());
        let spawned = thread.spawn(move || run(setup, of_worker, queue, stopped, begun_reply));
        spawned.map_err(|error| format!("no thread for a candidate in shadow: {error}"))?;
        let ended = |_| Err("the candidate's thread ended before it began".to_owned());
        begun.await.unwrap_or_else(ended)?;
        Ok(Self {
            shared,
            jobs,
            active: digest,
            _stop: stop,
        })
    }

    /// The guest of this digest made the call with entry `n` of the recording of `key`; `None` if it has none. Never
    /// waits for the candidate: skips what does not fit the queue, and calls of another version than the active one.
    /// `took`: how long the call took in wall-clock time. The candidate gets [`CPU_MORE_MAX`] more, up to its `cpu_ms`.
    pub fn observe(&self, key: &str, digest: &Digest, n: Option<u64>, took: Duration) {
        let key = key.to_owned();
        let job = n.filter(|_| *digest == self.active).map(|n| Job { key, n, took });
        // Locked until the call is counted: the candidate's thread may take it at once.
        let send = |status: &mut Status| match job.is_some_and(|job| self.jobs.try_send(job).is_ok()) {
            true => status.waiting += 1,
            false => self.shared.skip(status),
        };
        self.shared.status.send_modify(send);
    }

    /// The results so far.
    pub fn status(&self) -> Status {
        self.shared.status.borrow().clone()
    }

    /// A promotion was refused; `None` if another one is tried.
    pub fn promotion_refused(&self, refused: Option<PromotionRefused>) {
        let set = |status: &mut Status| status.promotion_refused = refused;
        self.shared.status.send_modify(set);
    }

    /// The results, as they change. Closed once the shadow is dropped and its thread has ended.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }
}

impl Shared {
    /// Counts a call that is not compared.
    fn skip(&self, status: &mut Status) {
        status.skipped += 1;
        self.count(Verdict::Skipped);
    }

    /// Counts a call in the host's metrics.
    fn count(&self, verdict: Verdict) {
        let labels = [("guest", self.name), ("verdict", &verdict.to_string())];
        self.metrics.count("trueup_shadow_calls_total", &labels, 1);
    }
}

/// The candidate's thread: takes calls from the queue, has the candidate make them, and counts the results.
struct Worker {
    versions: Setup,
    shared: Arc<Shared>,
    kept: Kept,
    candidates: LruCache<String, CandidateInstance>,
}

/// Works until it is stopped, or its owner is gone.
fn run(
    versions: Setup,
    shared: Arc<Shared>,
    jobs: mpsc::Receiver<Job>,
    stopped: oneshot::Receiver<()>,
    begun_reply: oneshot::Sender<Result<(), String>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| format!("no runtime for a candidate in shadow: {error}"));
    let begun = runtime.and_then(|runtime| {
        // The candidate must accept its settings.
        let started = versions.candidate.start_unrecorded("shadow", Instances::trial(), None);
        runtime.block_on(started).map_err(|error| error.to_string())?;
        let folder = &versions.folder;
        let kept =
            Kept::open(folder).map_err(|error| format!("the shadow's folder `{}`: {error}", folder.display()))?;
        let worker = Worker {
            versions,
            shared,
            kept,
            candidates: LruCache::new(NonZeroUsize::new(KEYS_MAX).unwrap_or(NonZeroUsize::MIN)),
        };
        Ok((runtime, worker))
    });
    // If the owner no longer waits, `stopped` reports it.
    let _ = begun_reply.send(begun.as_ref().map(drop).map_err(Clone::clone));
    if let Ok((runtime, worker)) = begun {
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = stopped => {}
                () = worker.work(jobs) => {}
            }
        });
    }
}

impl Worker {
    async fn work(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.recv().await {
            self.one(&job).await;
            self.shared.status.send_modify(|status| status.waiting -= 1);
        }
    }

    async fn one(&mut self, job: &Job) {
        let folder = self.versions.active.recording(&job.key);
        let mut candidate = match CandidateInstance::at(&folder, job.n, self.candidates.pop(&job.key), &self.versions) {
            Ok(candidate) => candidate,
            Err(why) => return self.skip(job, &why),
        };
        match candidate.call(&self.versions, job).await {
            Ok(None) => {
                self.shared.count(Verdict::Same);
                self.shared.status.send_modify(Status::same);
            }
            Ok(Some(difference)) => self.not_same(job, &candidate, difference),
            Err(why) => return self.skip(job, &why),
        }
        if !candidate.reading.is_long() {
            self.candidates.push(job.key.clone(), candidate);
        }
    }

    fn not_same(&mut self, job: &Job, candidate: &CandidateInstance, mut difference: Difference) {
        let now = Instant::now();
        let has_room = self.kept.has_room(now);
        let recording = has_room.then(|| candidate.recording_of(job.n, &self.versions));
        difference.file = recording.and_then(|recording| self.kept.keep(&job.key, &recording.ok()?, now));
        self.shared.count(difference.verdict);
        self.shared.status.send_modify(|status| status.not_same(difference));
    }

    /// The call is not compared. The next one of its key begins anew, with a state of the active guest.
    fn skip(&self, job: &Job, why: &str) {
        tracing::debug!(instance = job.key, "not compared in shadow: {why}");
        self.shared.status.send_modify(|status| self.shared.skip(status));
    }
}

/// How many of the last differences a status lists. All are counted, and the newest are kept as files.
pub const LAST_MAX: usize = 10;

/// How one call of the candidate compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// The same requests and the same result; as far as recorded, if the active guest's call was cut short.
    Same,
    /// Another request in place of a recorded one, other arguments, or another ending.
    Different,
    /// A request beyond those of the active guest: what it would have decided is unknown.
    Unrecorded,
    /// Not compared: the queue was full, or the recording does not show the call.
    Skipped,
}

/// The results so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The candidate's name.
    pub candidate: String,
    /// Its version.
    pub version: String,
    /// Its digest.
    pub digest: String,
    /// When it began, in milliseconds since 1970.
    pub since_ms: u64,
    /// Calls compared: the sum of the following three.
    pub compared: u64,
    /// Calls that were the same.
    pub same: u64,
    /// Calls that were decided differently, including a trap or no answer.
    pub different: u64,
    /// Calls in which it made a request that the active guest did not.
    pub unrecorded: u64,
    /// Calls that were not compared.
    pub skipped: u64,
    /// Calls that are still to be compared.
    pub waiting: u64,
    /// Calls that were the same since the last that was not. Skipped calls do not count.
    pub same_in_a_row: u64,
    /// The first call that was not the same.
    pub first: Option<Difference>,
    /// The last of these, oldest first.
    pub last: Vec<Difference>,
    /// How many calls in a row must be the same before it is promoted. Absent if only a command promotes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted_after: Option<u64>,
    /// Why it was not promoted when that was last tried. `None` in the answer of an earlier host, too.
    pub promotion_refused: Option<PromotionRefused>,
}

/// A promotion that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromotionRefused {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Why, and what to type, in one line.
    pub why: String,
}

/// One call that was not the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// Different or unrecorded.
    pub verdict: Verdict,
    /// The entry, in the journal's numbers. `None` if the candidate gave no answer at all.
    pub n: Option<u64>,
    /// The difference, on one line, in the words of `trueup replay`.
    pub what: String,
    /// The recording that shows it. `None` if it could not be written, or the rate limit was reached.
    pub file: Option<PathBuf>,
}

impl Status {
    fn same(&mut self) {
        self.compared += 1;
        self.same += 1;
        self.same_in_a_row += 1;
    }

    fn not_same(&mut self, difference: Difference) {
        self.compared += 1;
        match difference.verdict {
            Verdict::Unrecorded => self.unrecorded += 1,
            _ => self.different += 1,
        }
        self.same_in_a_row = 0;
        self.first.get_or_insert_with(|| difference.clone());
        if self.last.len() == LAST_MAX {
            self.last.remove(0);
        }
        self.last.push(difference);
    }
}
