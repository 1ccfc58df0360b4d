//! A server's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Wall-clock time that advances evenly, even if the machine's clock is set meanwhile.
pub(crate) struct Clock {
    started: Instant,
    started_at: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        // A clock before 1970 counts as 1970: only differences matter.
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_at,
        }
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from((self.started_at + self.started.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }

    /// Nanoseconds since the server started.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
