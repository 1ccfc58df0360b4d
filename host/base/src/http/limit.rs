//! A server's rate limit: what `Retry-After` means, and until when the host may not send.
//!
//! This module never waits: during a limit the host answers `rate-limited`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The maximum for `Retry-After`: a year is a mistake of the server, and above some centuries instants overflow.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Until when a server accepts no requests. One for the whole host.
#[derive(Debug, Default)]
pub struct RateLimit(Mutex<Option<Instant>>);

impl RateLimit {
    /// Blocks sending until `until`, if there is one. The latest of several counts: they come from concurrent requests.
    pub fn extend(&self, until: Option<Instant>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known = (*known).max(until);
    }

    /// The end of the limit, if it is not over.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|&until| until > now)
    }
}

/// When a wait that begins now ends.
pub fn end_of(wait_ms: u64, now: Instant) -> Instant {
    now + Duration::from_millis(wait_ms).min(RETRY_AFTER_MAX)
}

/// Milliseconds from now to `until`, rounded up; 0 if it is over.
pub fn left_ms(until: Instant, now: Instant) -> u64 {
    u64::try_from(until.saturating_duration_since(now).as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The wait that `Retry-After` asks for: seconds, or a date relative to the answer's own `Date`, so that the two clocks
/// need not agree. Without a `Date`, the time of receipt replaces it (RFC 9110 section 6.6.1). `None` if it is
/// unreadable.
pub fn retry_after_ms(retry_after: Option<&str>, date: Option<&str>, received: SystemTime) -> Option<u64> {
    let retry_after = retry_after?.trim();
    if !retry_after.is_empty() && retry_after.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds mean forever.
        return Some(retry_after.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1_000));
    }
    let until = httpdate::parse_http_date(retry_after).ok()?;
    let answered = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let wait = until.duration_since(answered.unwrap_or(received)).unwrap_or_default();
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}
