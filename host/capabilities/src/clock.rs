//! `trueup:host/clock`: what time it is, and waiting.
//!
//! Two clocks: the machine's, and a virtual one that moves only when it is told to or slept on, for scenarios,
//! plans and benchmarks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Answer;

/// A source of time in milliseconds since the Unix epoch.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
    /// Answers when `duration_ms` have passed.
    fn sleep_ms(&self, duration_ms: u64) -> Answer<'_, ()>;
    /// A guest was told that it is `now_ms`: a clock that only moves when it is told to must not show less afterwards.
    fn at_least_ms(&self, _now_ms: u64) {}
}

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        // A machine whose clock stands before 1970 gets 0: no decision depends on how far before.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep_ms(&self, duration_ms: u64) -> Answer<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(duration_ms)))
    }
}

/// A clock that stands still until it is advanced or slept on: a sleep moves it at once.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// A clock that shows `now_ms`.
    pub fn new(now_ms: u64) -> Self {
        Self(AtomicU64::new(now_ms))
    }

    /// Moves the clock forward; it stops at the end of u64.
    pub fn advance_ms(&self, duration_ms: u64) {
        self.set_ms(self.now_ms().saturating_add(duration_ms));
    }

    /// Sets the clock.
    pub fn set_ms(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn at_least_ms(&self, now_ms: u64) {
        self.0.fetch_max(now_ms, Ordering::SeqCst);
    }

    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep_ms(&self, duration_ms: u64) -> Answer<'_, ()> {
        self.advance_ms(duration_ms);
        Box::pin(std::future::ready(()))
    }
}
