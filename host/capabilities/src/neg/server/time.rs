//! The server's clock, and the API's time format.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Wall-clock time that advances evenly, whatever happens to the machine's clock meanwhile.
pub(super) struct Clock {
    started: Instant,
    started_at: Duration,
}

impl Clock {
    pub(super) fn start() -> Self {
        // A clock before 1970 may count as 1970: only differences matter.
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_at,
        }
    }

    /// Milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from((self.started_at + self.started.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }

    /// Since the start.
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// RFC 3339 with milliseconds, as in `2026-01-31T12:00:00.000+00:00`; the epoch if a time can't be represented.
pub(super) fn timestamp(ms: u64) -> String {
    let time = i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .strftime("%Y-%m-%dT%H:%M:%S.%3f+00:00")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_milliseconds_and_an_offset() {
        assert_eq!(timestamp(1_767_225_600_007), "2026-01-01T00:00:00.007+00:00");
        assert_eq!(timestamp(u64::MAX), "1970-01-01T00:00:00.000+00:00");
    }
}
