//! A server's rate limit: what `Retry-After` says, and until when nothing may be sent.
//!
//! Waits for nothing itself: the host never waits out a limit, it answers `rate-limited`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A longer `Retry-After` counts as this: a year is a mistake of the server's, and beyond some centuries instants
/// overflow.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The time until which a server wants to be left alone. One for the whole host.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    until: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// Nothing may be sent before `until`. Of several, the latest counts: they come from requests that were under way
    /// together.
    pub(crate) fn extend(&self, until: Instant) {
        let mut known = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none_or(|known| known < until) {
            *known = Some(until);
        }
    }

    /// The end of the limit, where it is not over.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        let known = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|&until| until > now)
    }
}

/// When a wait that begins now ends.
pub(crate) fn end_of(wait_ms: u64, now: Instant) -> Instant {
    now + Duration::from_millis(wait_ms).min(RETRY_AFTER_MAX)
}

/// Milliseconds from now to `until`, a begun one counted in full; 0 where it is over.
pub(crate) fn left_ms(until: Instant, now: Instant) -> u64 {
    let left = until.saturating_duration_since(now);
    u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// What `Retry-After` asks for: seconds, or a date against the answer's own `Date`, so that the two clocks need not
/// agree. Without a `Date` the time of receipt stands for it, as RFC 9110 section 6.6.1 says. None where it says
/// nothing readable.
pub(crate) fn retry_after_ms(retry_after: Option<&str>, date: Option<&str>, received: SystemTime) -> Option<u64> {
    let retry_after = retry_after?.trim();
    if !retry_after.is_empty() && retry_after.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds: for ever.
        return Some(retry_after.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1_000));
    }
    let until = httpdate::parse_http_date(retry_after).ok()?;
    let answered = date
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .unwrap_or(received);
    let wait = until.duration_since(answered).unwrap_or(Duration::ZERO);
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}
