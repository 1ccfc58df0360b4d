//! A rate limit.
//!
//! Pure: time is an argument, and nothing is awaited.

use std::num::NonZeroU32;

const SECOND_NS: u64 = 1_000_000_000;

/// Admits a full second's requests at once, then one for each interval.
pub(crate) struct Rate {
    interval_ns: u64,
    /// When the requests admitted so far would have arrived at an even pace.
    paced_until_ns: u64,
}

impl Rate {
    /// At most `per_second` requests at once, and per second.
    pub(crate) fn new(per_second: NonZeroU32) -> Self {
        Self {
            interval_ns: SECOND_NS / u64::from(per_second.get()),
            paced_until_ns: 0,
        }
    }

    /// Admits a request. An error is the number of nanoseconds until the limit admits one.
    pub(crate) fn admit(&mut self, now_ns: u64) -> Result<(), u64> {
        let paced_until_ns = self.paced_until_ns.max(now_ns) + self.interval_ns;
        let ahead_ns = paced_until_ns - now_ns;
        if ahead_ns > SECOND_NS {
            return Err(ahead_ns - SECOND_NS);
        }
        self.paced_until_ns = paced_until_ns;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_requests_is_admitted_at_once_then_one_per_interval() {
        let mut rate = Rate::new(NonZeroU32::new(4).unwrap());
        let start_ns = 10 * SECOND_NS;
        for _ in 0..4 {
            assert_eq!(rate.admit(start_ns), Ok(()));
        }
        assert_eq!(rate.admit(start_ns), Err(SECOND_NS / 4));
        assert_eq!(rate.admit(start_ns + SECOND_NS / 4 - 1), Err(1));
        assert_eq!(rate.admit(start_ns + SECOND_NS / 4), Ok(()));
        assert_eq!(rate.admit(start_ns + SECOND_NS / 4), Err(SECOND_NS / 4));
        for _ in 0..4 {
            assert_eq!(rate.admit(start_ns + 2 * SECOND_NS), Ok(()));
        }
        assert!(rate.admit(start_ns + 2 * SECOND_NS).is_err());
    }
}
