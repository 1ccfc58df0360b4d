//! A rate limit: a number at once, then a number per second. Times are arguments.

use std::time::{Duration, Instant};

/// Counts actions against a rate.
#[derive(Debug)]
pub(super) struct Rate {
    /// One slot becomes free in each such interval.
    every: Duration,
    at_once: u32,
    /// When all slots are free again. `None` before the first action.
    free_at: Option<Instant>,
}

impl Rate {
    pub(super) fn new(at_once: u32, per_second: u32) -> Self {
        Self {
            every: Duration::from_secs(1) / per_second.max(1),
            at_once,
            free_at: None,
        }
    }

    /// Whether one more action is allowed now.
    pub(super) fn has(&self, now: Instant) -> bool {
        let taken = |free_at: Instant| free_at.saturating_duration_since(now);
        self.free_at
            .is_none_or(|free_at| taken(free_at) + self.every <= self.every * self.at_once)
    }

    /// Counts an action.
    pub(super) fn take(&mut self, now: Instant) {
        self.free_at = Some(self.free_at.map_or(now, |free_at| free_at.max(now)) + self.every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_then_so_many_a_second() {
        let begun = Instant::now();
        let mut rate = Rate::new(3, 2);
        let mut done_at = |after_ms: u64| {
            let now = begun + Duration::from_millis(after_ms);
            let mut done = 0;
            while rate.has(now) {
                rate.take(now);
                done += 1;
            }
            done
        };
        assert_eq!([done_at(0), done_at(0)], [3, 0]);
        assert_eq!([done_at(499), done_at(500), done_at(500)], [0, 1, 0]);
        assert_eq!(done_at(1_500), 2);
        assert_eq!(
            done_at(60_000),
            3,
            "no more than at once, however long nothing was done"
        );
    }
}
