//! The current time, and sleeping: `trueup:host/clock` for guests, and the host's own.
//!
//! There are two clocks: the machine's, and a virtual one for scenarios, plans and benchmarks, which moves only on
//! request or when slept on.

use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Ends when a sleep is over. Boxed, so that clocks can be `Arc<dyn Clock>`.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A source of time in milliseconds since the Unix epoch.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
    /// Milliseconds for measuring durations, monotonic: setting the machine's clock does not move it. It counts from
    /// the Unix epoch as the machine's clock had it when this process first asked, so that it can be shown as a time.
    /// Values of different processes can't be compared.
    fn steady_ms(&self) -> u64;
    /// Returns after `duration_ms`.
    fn sleep_ms(&self, duration_ms: u64) -> Sleep<'_>;
    /// The guest has seen `now_ms`, so a virtual clock must not show less from now on.
    fn at_least_ms(&self, _now_ms: u64) {}
}

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

/// Where [`SystemClock::steady_ms`] starts: the machine's time when it was first asked.
static BEGAN: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), SystemClock.now_ms()));

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        // If the machine's clock is before 1970, use 0: no decision depends on the exact time then.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    fn steady_ms(&self) -> u64 {
        let (began, at_ms) = *BEGAN;
        at_ms.saturating_add(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn sleep_ms(&self, duration_ms: u64) -> Sleep<'_> {
        Box::pin(tokio::time::sleep(Duration::from_millis(duration_ms)))
    }
}

/// A clock that moves only on request or when slept on: a sleep advances it at once.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// A clock that shows `now_ms`.
    pub fn new(now_ms: u64) -> Self {
        Self(AtomicU64::new(now_ms))
    }

    /// Moves the clock forward, saturating at the end of u64.
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

    fn steady_ms(&self) -> u64 {
        self.now_ms()
    }

    fn sleep_ms(&self, duration_ms: u64) -> Sleep<'_> {
        self.advance_ms(duration_ms);
        Box::pin(std::future::ready(()))
    }
}
