//! Operations under way: each is looked at until it ends, and its end is kept until it was taken in.
//!
//! ```text
//! begin -> store -> look, pause, look ... -> end -> store -> channel -> told -> forgotten
//! ```

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::operations::{End, OperationStore, Started, StoreError};
use super::path::Paths;
use super::request::Requests;
use super::settings::Settings;
use super::wire::{self, Operation};
use crate::neg::Error;

/// The end of an operation that Compute Engine does not know any more.
const NOT_FOUND: &str = "operation not found";
/// The end of an operation that took longer than it may.
const TIMED_OUT: &str = "timed out";
/// A longer `Retry-After` counts as this: an operation's end is not to be missed for it.
const RATE_LIMIT_PAUSE_MAX: Duration = Duration::from_secs(600);

/// The end of an operation, for the instance that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whose it is.
    pub instance: String,
    /// Its number.
    pub operation: u64,
    /// Why it failed; none where it went well.
    pub failure: Option<String>,
}

/// What looks at operations have in common.
pub(super) struct Watch {
    pub(super) requests: Requests,
    pub(super) paths: Paths,
    pub(super) settings: Settings,
    pub(super) store: Arc<dyn OperationStore>,
    pub(super) ends: mpsc::Sender<Ended>,
    /// The operations that are looked at, or whose end was not taken in yet.
    pub(super) watched: Mutex<BTreeSet<(String, u64)>>,
}

/// The looks under way; all end when it is dropped.
pub(super) type Tasks = Arc<Mutex<JoinSet<()>>>;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What they guard is changed in one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

impl Watch {
    /// Keeps an operation and begins to look at it; where that is so already, nothing happens.
    ///
    /// # Errors
    /// Where it can't be kept: then it is not looked at either.
    pub(super) async fn begin(self: &Arc<Self>, started: Started, tasks: &Tasks) -> Result<(), StoreError> {
        let key = (started.instance.clone(), started.number);
        if !lock(&self.watched).insert(key.clone()) {
            return Ok(());
        }
        if let Err(error) = self.keep(&started).await {
            lock(&self.watched).remove(&key);
            return Err(error);
        }
        let until = self.until(Duration::ZERO);
        self.spawn(started, until, tasks);
        Ok(())
    }

    /// Goes on with those that an earlier run of the host has kept.
    pub(super) fn resume(self: &Arc<Self>, stored: Vec<Started>, tasks: &Tasks) {
        for started in stored {
            lock(&self.watched).insert((started.instance.clone(), started.number));
            // Over a restart, the wall clock alone says how long ago that was.
            let ago_ms = now_ms().saturating_sub(started.started_ms);
            let until = self.until(Duration::from_millis(ago_ms));
            self.spawn(started, until, tasks);
        }
    }

    /// Until when an operation may take that was started so long ago.
    fn until(&self, ago: Duration) -> Instant {
        Instant::now() + Duration::from_millis(self.settings.operation_timeout_ms).saturating_sub(ago)
    }

    fn spawn(self: &Arc<Self>, started: Started, until: Instant, tasks: &Tasks) {
        let watch = Arc::clone(self);
        let mut tasks = lock(tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { watch.to_its_end(started, until).await });
    }

    async fn to_its_end(&self, mut started: Started, until: Instant) {
        let end = match started.end.clone() {
            // It ended before the host did.
            Some(end) => end,
            None => {
                let end = End {
                    failure: self.failure(&started, until).await,
                };
                started.end = Some(end.clone());
                if let Err(error) = self.keep(&started).await {
                    // After a crash it is asked for again.
                    tracing::warn!(%error, operation = started.number, "the end of an operation was not kept");
                }
                end
            }
        };
        let ended = Ended {
            instance: started.instance,
            operation: started.number,
            failure: end.failure,
        };
        // Where nobody listens any more, the next run of the host tells it.
        let _ = self.ends.send(ended).await;
    }

    async fn keep(&self, started: &Started) -> Result<(), StoreError> {
        let (store, started) = (Arc::clone(&self.store), started.clone());
        blocking(move || store.put(&started)).await
    }

    /// Why an operation failed, as soon as it has ended; none where it went well.
    async fn failure(&self, started: &Started, until: Instant) -> Option<String> {
        let mut looks = 0;
        let mut may_wait = true;
        loop {
            let began = Instant::now();
            let mut pause = self.settings.poll_pause(looks);
            looks += 1;
            match self.look(&started.zone, started.number, may_wait).await {
                Ok(operation) if operation.is_done => return operation.failure.map(|failure| failure.text),
                // It has waited: that was the pause.
                Ok(_) if began.elapsed() >= pause => pause = Duration::ZERO,
                Ok(_) => {}
                Err(Error::NotFound) => return Some(NOT_FOUND.to_owned()),
                Err(error) => {
                    tracing::debug!(
                        ?error,
                        operation = started.number,
                        "the operation could not be looked at"
                    );
                    if let Error::RateLimited(Some(ms)) = error {
                        pause = pause.max(Duration::from_millis(ms).min(RATE_LIMIT_PAUSE_MAX));
                    }
                    // Whatever it does not like, a plain look is simpler.
                    may_wait = !may_wait;
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(TIMED_OUT.to_owned());
            }
            sleep(pause.min(left)).await;
        }
    }

    /// Looks at an operation: waits with the server where there is a place for that, else asks for what it is now.
    pub(super) async fn look(&self, zone: &str, number: u64, may_wait: bool) -> Result<Operation, Error> {
        let place = if may_wait { self.requests.pace.may_wait() } else { None };
        let request = match place {
            Some(_) => self.paths.wait(zone, number)?,
            None => self.paths.get_operation(zone, number)?,
        };
        let answer = self.requests.look(&request).await?;
        operation_of(&request.shown(), &answer)
    }

    /// An end was taken in.
    pub(super) async fn told(&self, instance: &str, number: u64) -> Result<(), StoreError> {
        let (store, owned) = (Arc::clone(&self.store), instance.to_owned());
        blocking(move || store.remove(&owned, number)).await?;
        lock(&self.watched).remove(&(instance.to_owned(), number));
        Ok(())
    }
}

/// The operation that an answer holds.
pub(super) fn operation_of(shown: &str, answer: &Value) -> Result<Operation, Error> {
    wire::operation(answer).map_err(|problem| Error::Unavailable(format!("{shown}: {problem}")))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down cancels, and it drops whoever waits here as well.
            Err(_) => std::future::pending().await,
        },
    }
}
