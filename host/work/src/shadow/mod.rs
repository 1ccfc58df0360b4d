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

mod begun;
mod candidate;
mod kept;
mod rate;
mod reading;
mod status;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use trueup_capabilities::metrics::Registry;
use trueup_engine::Digest;
use trueup_instance::Instances;
use trueup_instance::replay::Compare;

pub use self::candidate::CPU_MORE_MAX;
pub use self::kept::{KEPT_AT_ONCE_MAX, KEPT_BYTES_MAX, KEPT_FILES_MAX, KEPT_PER_SECOND_MAX};
pub use self::status::{Difference, LAST_MAX, PromotionRefused, Status, Verdict};
pub use self::worker::KEYS_MAX;

/// The maximum number of calls that wait for a candidate: five seconds of 200 changes a second.
pub const QUEUE_CALLS_MAX: usize = 1_000;

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
    same_in_a_row: watch::Receiver<u64>,
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

/// What the caller and the candidate's thread share.
struct Shared {
    status: Mutex<Status>,
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
        let digest = active.guest.digest;
        let shared = Arc::new(Shared {
            status: Mutex::new(Status::begin(&candidate.guest)),
            metrics: Arc::clone(&setup.metrics),
            name: setup.active.name,
        });
        let (jobs, queue) = mpsc::channel(QUEUE_CALLS_MAX);
        let (count_same, same_in_a_row) = watch::channel(0);
        let (stop, stopped) = oneshot::channel::<()>();
        let (begun_reply, begun) = oneshot::channel();
        let of_worker = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("shadow".to_owned())
            .spawn(move || worker::run(setup, of_worker, count_same, queue, stopped, begun_reply))
            .map_err(|error| format!("no thread for a candidate in shadow: {error}"))?;
        begun
            .await
            .unwrap_or_else(|_| Err("the candidate's thread ended before it began".to_owned()))?;
        Ok(Self {
            shared,
            jobs,
            same_in_a_row,
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
        let mut status = self.shared.status.lock();
        match job.is_some_and(|job| self.jobs.try_send(job).is_ok()) {
            true => status.waiting += 1,
            false => self.shared.skip(&mut status),
        }
    }

    /// The results so far.
    pub fn status(&self) -> Status {
        self.shared.status.lock().clone()
    }

    /// A promotion was refused; `None` if another one is tried.
    pub fn promotion_refused(&self, refused: Option<PromotionRefused>) {
        self.shared.status.lock().promotion_refused = refused;
    }

    /// How many calls were the same since the last that was not. Closed if the shadow has ended.
    pub fn same_in_a_row(&self) -> watch::Receiver<u64> {
        self.same_in_a_row.clone()
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
