//! Limits the API's load: requests in any second, and concurrent requests. First come, first served.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

const SECOND: Duration = Duration::from_secs(1);

/// One for the whole host.
pub(super) struct Pace {
    at_a_time: Semaphore,
    per_second: usize,
    /// The times of the latest requests, as many as are allowed per second.
    latest: Mutex<VecDeque<Instant>>,
}

impl Pace {
    pub(super) fn new(per_second: u32, at_a_time: u16) -> Self {
        Self {
            at_a_time: Semaphore::new(usize::from(at_a_time)),
            per_second: usize::try_from(per_second).unwrap_or(usize::MAX),
            latest: Mutex::default(),
        }
    }

    /// Waits for a slot, and for the time to use it. `None` only if the semaphore is closed, which never happens.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        let permit = self.at_a_time.acquire().await.ok()?;
        // Held while it waits: first come, first served.
        let mut latest = self.latest.lock().await;
        if latest.len() >= self.per_second
            && let Some(oldest) = latest.pop_front()
        {
            sleep_until(oldest + SECOND).await;
        }
        latest.push_back(Instant::now());
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
