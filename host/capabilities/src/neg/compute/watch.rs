//! Running operations: each is polled until it ends, and its end is kept until it is acknowledged.
//!
//! ```text
//! begin -> store -> look, pause, look ... -> end -> store -> channel -> acknowledged -> forgotten
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};
use trueup_base::clock::{Clock as _, SystemClock};

use super::operations::{End, Operations, Started, StoreError};
use super::request::Requests;
use super::settings::Settings;
use super::wire::{self, Operation};
use crate::neg::{Error, NegRef};

/// The failure of an operation that Compute Engine does not know any more.
pub(super) const NOT_FOUND: &str = "operation not found";
/// The failure of an operation that exceeded its time.
const TIMED_OUT: &str = "timed out";
/// The maximum for `Retry-After`: an operation's end must not be missed because of it.
const RATE_LIMIT_PAUSE_MAX: Duration = Duration::from_secs(600);

/// The end of an operation, for the instance that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The instance.
    pub instance: String,
    /// Its number.
    pub operation: u64,
    /// Why it failed; `None` on success.
    pub failure: Option<String>,
}

/// The shared state of all polling tasks.
pub(super) struct Watch {
    pub(super) requests: Requests,
    pub(super) settings: Settings,
    pub(super) store: Arc<Operations>,
    pub(super) ends: mpsc::Sender<Ended>,
    /// The operations that are polled, or whose end was not acknowledged yet.
    pub(super) watched: Mutex<BTreeSet<(String, u64)>>,
    /// Changes of one NEG are sent one after another, in the order of the requests.
    pub(super) in_order: Mutex<BTreeMap<NegRef, Arc<tokio::sync::Mutex<()>>>>,
}

/// The polling tasks; all end when it is dropped.
pub(super) type Tasks = Arc<Mutex<JoinSet<()>>>;

impl Watch {
    /// Saves an operation and starts to poll it. Does nothing if it is already polled.
    ///
    /// # Errors
    /// If it can't be saved; then it is not polled either.
    pub(super) async fn begin(self: &Arc<Self>, started: Started, tasks: &Tasks) -> Result<(), StoreError> {
        let key = (started.instance.clone(), started.number);
        if !self.watched.lock().insert(key.clone()) {
            return Ok(());
        }
        if let Err(error) = self.keep(&started).await {
            self.watched.lock().remove(&key);
            return Err(error);
        }
        self.spawn(started, Duration::ZERO, tasks);
        Ok(())
    }

    /// Resumes the operations that an earlier run of the host has saved.
    pub(super) fn resume(self: &Arc<Self>, stored: Vec<Started>, tasks: &Tasks) {
        for started in stored {
            self.watched.lock().insert((started.instance.clone(), started.number));
            // Across a restart, only the wall clock tells how long ago that was.
            let ago_ms = SystemClock.now_ms().saturating_sub(started.started_ms);
            self.spawn(started, Duration::from_millis(ago_ms), tasks);
        }
    }

    /// Starts to poll an operation that started this long ago.
    fn spawn(self: &Arc<Self>, started: Started, ago: Duration, tasks: &Tasks) {
        let until = Instant::now() + Duration::from_millis(self.settings.operation_timeout_ms).saturating_sub(ago);
        let watch = Arc::clone(self);
        let mut tasks = tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { watch.to_its_end(started, until).await });
    }

    async fn to_its_end(&self, mut started: Started, until: Instant) {
        // Otherwise it ended before the host did.
        if started.end.is_none() {
            let failure = match self.end(&started.zone, started.number, until).await {
                Ok(operation) => operation.failure.map(|failure| failure.text),
                Err(unknown) => Some(unknown.to_owned()),
            };
            started.end = Some(End { failure });
            if let Err(error) = self.keep(&started).await {
                // After a crash the operation is polled again.
                tracing::warn!(%error, operation = started.number, "the end of an operation was not kept");
            }
        }
        let ended = Ended {
            instance: started.instance,
            operation: started.number,
            failure: started.end.and_then(|end| end.failure),
        };
        // Without a receiver, the next run of the host reports it.
        let _ = self.ends.send(ended).await;
    }

    async fn keep(&self, started: &Started) -> Result<(), StoreError> {
        let (store, started) = (Arc::clone(&self.store), started.clone());
        blocking(move || store.put(&started)).await
    }

    /// Polls an operation until it ends, at least once. An error says why its end is not known.
    async fn end(&self, zone: &str, number: u64, until: Instant) -> Result<Operation, &'static str> {
        let mut looks = 0;
        loop {
            let mut pause = self.settings.poll_pause(looks);
            looks += 1;
            match self.look(zone, number).await {
                Ok(operation) if operation.is_done => return Ok(operation),
                Ok(_) => {}
                Err(Error::NotFound) => return Err(NOT_FOUND),
                Err(error) => {
                    tracing::debug!(?error, operation = number, "the operation could not be looked at");
                    if let Error::RateLimited(Some(ms)) = error {
                        pause = pause.max(Duration::from_millis(ms).min(RATE_LIMIT_PAUSE_MAX));
                    }
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TIMED_OUT);
            }
            sleep(pause.min(left)).await;
        }
    }

    pub(super) async fn look(&self, zone: &str, number: u64) -> Result<Operation, Error> {
        let request = self.settings.operation_request(zone, number)?;
        operation_of(&request.shown(), &self.requests.look(&request).await?)
    }
}

/// The operation in an answer.
pub(super) fn operation_of(shown: &str, answer: &Value) -> Result<Operation, Error> {
    wire::operation(answer).map_err(|problem| Error::Unavailable(format!("{shown}: {problem}")))
}

/// Runs blocking work on another thread. A panic of the work goes on here.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    match done.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime ends, and this task with it.
        Err(Err(_)) => std::future::pending().await,
    }
}
