//! Turns for calls that compute for long: they let short calls go first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;

/// Above this total computing time, a call continues in turns: a decision about a Service takes a few milliseconds.
pub const SLICE: Duration = Duration::from_millis(50);

/// The right to compute until it is dropped.
pub type Turn = Box<dyn Send>;

/// Decides when a call that computes for long continues.
#[async_trait]
pub trait Pace: Send + Sync {
    /// Resolves when a call that has computed for `computed` may continue for a while.
    async fn turn(&self, computed: Duration) -> Turn;
}

/// The turn of one call, if it has one. It ends with the call, and while the call waits for an answer.
#[derive(Clone, Default)]
pub struct Holding(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether a call of the instance ever waited. Most never do; their ends then cost one load.
    has_waited: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    turn: Option<Turn>,
    /// The time spent waiting for turns that no call has counted yet.
    waited: Duration,
}

impl Holding {
    /// Ends the turn.
    pub fn end(&self) {
        if self.0.has_waited.load(Ordering::Acquire) {
            let ended = self.0.held.lock().turn.take();
            drop(ended);
        }
    }

    /// Takes the time spent waiting for turns since the last call.
    pub fn take_waited(&self) -> Duration {
        let has_waited = self.0.has_waited.load(Ordering::Acquire);
        let waited = has_waited.then(|| std::mem::take(&mut self.0.held.lock().waited));
        waited.unwrap_or_default()
    }

    /// Waits for the next turn of a call that has computed for `computed`, and holds it.
    pub async fn wait(self, pace: Arc<dyn Pace>, computed: Duration) {
        self.end();
        let begun = Instant::now();
        let turn = pace.turn(computed).await;
        let mut held = self.0.held.lock();
        held.turn = Some(turn);
        held.waited += begun.elapsed();
        self.0.has_waited.store(true, Ordering::Release);
    }
}
