//! Limits the API's load: requests in any second, and concurrent requests. First come, first served.

use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};
use trueup_base::window::Window;

const SECOND: Duration = Duration::from_secs(1);

/// One for the whole host.
pub(super) struct Pace {
    at_a_time: Semaphore,
    per_second: usize,
    /// In nanoseconds since `since`.
    latest: Mutex<Window>,
    since: Instant,
}

impl Pace {
    pub(super) fn new(per_second: u32, at_a_time: u16) -> Self {
        Self {
            at_a_time: Semaphore::new(usize::from(at_a_time)),
            per_second: usize::try_from(per_second).unwrap_or(usize::MAX),
            latest: Mutex::default(),
            since: Instant::now(),
        }
    }

    /// Waits for a slot, and for the time to use it. `None` only if the semaphore is closed, which never happens.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        let permit = self.at_a_time.acquire().await.ok()?;
        // Held while it waits: first come, first served.
        let mut latest = self.latest.lock().await;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        while let Err(left) = latest.admit(self.per_second, nanoseconds(SECOND), nanoseconds(self.since.elapsed())) {
            sleep(Duration::from_nanos(left)).await;
        }
        Some(permit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_second_has_more_requests_than_it_may() {
        let pace = Pace::new(3, 100);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for _ in 0..7 {
            before.push(Instant::now());
            drop(pace.slot().await);
            after.push(Instant::now());
        }
        for (first, fourth) in before.iter().zip(&after[3..]) {
            assert!(*fourth - *first >= SECOND, "{before:?} {after:?}");
        }
    }

    #[tokio::test]
    async fn the_next_waits_until_a_slot_is_free() {
        let pace = Pace::new(100, 2);
        let (first, _second) = (pace.slot().await, pace.slot().await);
        let third = pace.slot();
        tokio::pin!(third);
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, third.as_mut()).await.is_err());
        drop(first);
        assert!(third.await.is_some());
    }
}
