//! Shadow: a candidate decides beside the active guest, without any effect.
//!
//! It gets every call of the active guest with the answers that the active guest got, and its requests and results
//! are compared with those of the active guest. It works on a thread of its own, behind a bounded queue. The shadow
//! skips what it can't keep up with, and never blocks the active guest. Other code decides which guest is active, and
//! when a candidate replaces it.
//!
//! ```text
//! active instance --tap--> observe --queue--> candidate's instance of that key --> same | different | unrecorded
//!                             |                            \--> folder/<n>-<key>.jsonl, metrics
//!                             +--> skipped: the queue is full, the key's state is unknown, another version was called
//! ```
//!
//! A candidate starts from a snapshot of the active guest and then keeps a state of its own while it decides the
//! same. After a difference it continues from the active guest's state. The shadow computes that state by repeating
//! the active guest's calls, so that it compares every later call, and asks the active guest for no more snapshots.

mod begun;
mod candidate;
mod job;
mod kept;
mod rate;
mod setup;
mod status;
mod worker;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use trueup_capabilities::metrics::Registry;
use trueup_engine::Digest;

pub use self::candidate::{CPU_MORE_MAX, HISTORY_BYTES_MAX};
pub use self::kept::{KEPT_AT_ONCE_MAX, KEPT_BYTES_MAX, KEPT_FILES_MAX, KEPT_PER_SECOND_MAX};
pub use self::setup::{Observed, Setup};
pub use self::status::{Difference, LAST_MAX, PromotionRefused, Status, Verdict};
pub use self::worker::KEYS_MAX;

pub(crate) use self::begun::fired;
use self::job::Job;
use self::rate::Rate;

/// The maximum number of calls that wait for a candidate: five seconds of 200 changes a second.
pub const QUEUE_CALLS_MAX: usize = 1_000;

/// The maximum total size of the waiting calls, including the states. One call has up to 16 MiB.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;

/// How many states the shadow may ask for at once: each key with an instance of the candidate may begin anew once,
/// with room to spare.
pub const STATES_AT_ONCE_MAX: u32 = 128;

/// How many states per second the shadow may ask for after that. For each, the active guest makes a snapshot before a
/// call, which takes as long as a call. If more keys take turns than the candidate has instances, the active guest
/// must not make one for each call.
pub const STATES_PER_SECOND_MAX: u32 = 10;

/// What a shadow needs of the next call of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Nothing: the call can't be compared. Report the call with [`Shadow::pass_over`].
    Nothing,
    /// The call.
    Call,
    /// The active instance's snapshot, and then the call: for the first call of a key, after a call that was skipped
    /// or ended without a result, and for a key whose state was dropped in favour of others.
    StateAndCall,
}

/// A running candidate. Dropping it stops the candidate, even in the middle of a call.
pub struct Shadow {
    shared: Arc<Shared>,
    same_in_a_row: watch::Receiver<u64>,
    _stop: oneshot::Sender<()>,
}

/// What the caller and the candidate's thread share.
struct Shared {
    queue: Mutex<Queue>,
    /// Notified when the queue has a job.
    queued: Notify,
    metrics: Arc<Registry>,
    name: &'static str,
    /// The version whose calls are compared.
    active: Digest,
}

struct Queue {
    status: Status,
    jobs: VecDeque<Job>,
    bytes: usize,
    /// Keys whose state the candidate's thread has, or will have when it reaches the end of the queue.
    known: BTreeSet<String>,
    /// Keys whose state can't be read: asking again would cost the active guest another instance.
    without_state: BTreeSet<String>,
    /// The rate of states that were received.
    states: Rate,
    /// Whether the queue was full. The shadow asks for no state until half of the queue is free. Otherwise each freed
    /// place would cost a snapshot.
    was_full: bool,
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
        let (count_same, same_in_a_row) = watch::channel(0);
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                status: Status::begin(&candidate.guest),
                jobs: VecDeque::new(),
                bytes: 0,
                known: BTreeSet::new(),
                without_state: BTreeSet::new(),
                states: Rate::new(STATES_AT_ONCE_MAX, STATES_PER_SECOND_MAX),
                was_full: false,
            }),
            queued: Notify::new(),
            metrics: Arc::clone(&setup.metrics),
            name: setup.active.name,
            active: active.guest.digest,
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let (begun_reply, begun) = oneshot::channel();
        let of_worker = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("shadow".to_owned())
            .spawn(move || worker::run(setup, of_worker, count_same, stopped, begun_reply))
            .map_err(|error| format!("no thread for a candidate in shadow: {error}"))?;
        begun
            .await
            .unwrap_or_else(|_| Err("the candidate's thread ended before it began".to_owned()))?;
        Ok(Self {
            shared,
            same_in_a_row,
            _stop: stop,
        })
    }

    /// What the shadow needs of the next call of this key, made by the guest of this digest.
    pub fn interest(&self, key: &str, digest: &Digest) -> Interest {
        if *digest != self.shared.active {
            return Interest::Nothing;
        }
        let mut queue = self.shared.queue.lock();
        let is_full = queue.is_full();
        queue.was_full |= is_full;
        let may_ask = || !queue.was_full && !queue.without_state.contains(key) && queue.states.has(Instant::now());
        match queue.known.contains(key) {
            // A call that does not fit is not worth keeping.
            true if !is_full => Interest::Call,
            false if may_ask() => Interest::StateAndCall,
            _ => Interest::Nothing,
        }
    }

    /// Counts a call that was made and not observed, because [`Shadow::interest`] did not need it.
    pub fn pass_over(&self, key: &str) {
        let mut queue = self.shared.queue.lock();
        queue.known.remove(key);
        self.shared.skip(&mut queue, 1);
    }

    /// The active instance's state can't be read: this key is no longer observed.
    pub fn has_no_state(&self, key: &str) {
        self.shared.queue.lock().without_state.insert(key.to_owned());
    }

    /// Takes in what the active guest did. Never waits for the candidate: skips what does not fit the queue.
    pub fn observe(&self, observed: Observed) {
        let key = observed.key.clone();
        if observed.state.is_some() {
            self.shared.queue.lock().states.take(Instant::now());
        }
        if observed.digest != self.shared.active {
            return self.pass_over(&key);
        }
        let Some(jobs) = job::split(observed) else {
            return self.pass_over(&key);
        };
        let mut queue = self.shared.queue.lock();
        for job in jobs {
            self.shared.take(&mut queue, job);
        }
    }

    /// The results so far.
    pub fn status(&self) -> Status {
        self.shared.queue.lock().status.clone()
    }

    /// A promotion was refused; `None` if another one is tried.
    pub fn promotion_refused(&self, refused: Option<PromotionRefused>) {
        self.shared.queue.lock().status.promotion_refused = refused;
    }

    /// How many calls were the same since the last that was not. Closed if the shadow has ended.
    pub fn same_in_a_row(&self) -> watch::Receiver<u64> {
        self.same_in_a_row.clone()
    }
}

impl Queue {
    fn is_full(&self) -> bool {
        self.jobs.len() >= QUEUE_CALLS_MAX || self.bytes >= QUEUE_BYTES_MAX
    }

    /// A job was taken out of the queue.
    fn drained(&mut self) {
        if self.jobs.len() <= QUEUE_CALLS_MAX / 2 && self.bytes <= QUEUE_BYTES_MAX / 2 {
            self.was_full = false;
        }
    }

    /// The candidate's thread no longer has a state of this key, unless one is queued.
    fn forget(&mut self, key: &str) {
        let on_its_way = |job: &Job| job.key == key && job.begin.is_some();
        if !self.jobs.iter().any(on_its_way) {
            self.known.remove(key);
        }
    }
}

impl Shared {
    fn take(&self, queue: &mut Queue, job: Job) {
        let bytes = job.bytes();
        let known = job.begin.is_some() || queue.known.contains(&job.key);
        let fits = queue.jobs.len() < QUEUE_CALLS_MAX && queue.bytes.saturating_add(bytes) <= QUEUE_BYTES_MAX;
        // A call may be too long even for an empty queue: then no room is to be waited for.
        queue.was_full |= !fits && !queue.jobs.is_empty();
        if !(known && fits) {
            queue.known.remove(&job.key);
            return self.skip(queue, u64::from(!job.call.is_empty()));
        }
        if job.ends_instance() {
            // The next one is rebuilt from an earlier state.
            queue.known.remove(&job.key);
        } else {
            queue.known.insert(job.key.clone());
        }
        queue.bytes += bytes;
        queue.jobs.push_back(job);
        queue.status.waiting += 1;
        self.queued.notify_one();
    }

    /// Counts calls that are not compared.
    fn skip(&self, queue: &mut Queue, calls: u64) {
        queue.status.skipped += calls;
        self.count(Verdict::Skipped, calls);
    }

    fn count(&self, verdict: Verdict, calls: u64) {
        status::count(&self.metrics, self.name, verdict, calls);
    }
}
