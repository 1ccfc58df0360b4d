//! How long a failed key waits.
//!
//! Pure: the pause follows from the settings, the previous pause and one random number.

/// How the pause between failures grows. A value outside its field's range counts as the nearest valid one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure, in ms, before jitter; at least 1.
    pub initial_ms: u64,
    /// Each pause in percent of the previous one; at least 100.
    pub factor_percent: u32,
    /// The longest pause in ms, including jitter; at least `initial_ms`.
    pub max_ms: u64,
    /// The maximum jitter in percent of a pause, in either direction; at most 100.
    pub jitter_percent: u32,
}

impl Default for Backoff {
    /// 1 s, 2 s, 4 s, ... 5 min, each 20 % more or less: a brief failure recovers within seconds, a failure of hours
    /// costs a dozen tries an hour, and keys that failed together do not come back together.
    fn default() -> Self {
        Self {
            initial_ms: 1_000,
            factor_percent: 200,
            max_ms: 300_000,
            jitter_percent: 20,
        }
    }
}

impl Backoff {
    /// The pause after `previous_ms`, before jitter. `None` gives the first.
    pub(crate) fn next_base_ms(&self, previous_ms: Option<u64>) -> u64 {
        let initial_ms = self.initial_ms.max(1);
        let grown_ms = match previous_ms {
            None => initial_ms,
            Some(previous_ms) => percent_of(previous_ms, self.factor_percent.max(100)),
        };
        grown_ms.min(self.max_ms.max(initial_ms))
    }

    /// `base_ms` with jitter: `chance` 0 gives the shortest pause, `u64::MAX` the longest.
    pub(crate) fn with_jitter_ms(&self, base_ms: u64, chance: u64) -> u64 {
        let reach_ms = percent_of(base_ms, self.jitter_percent.min(100));
        let shortest_ms = base_ms - reach_ms;
        let moved_ms = shortest_ms.saturating_add(pick(reach_ms.saturating_mul(2), chance));
        moved_ms.clamp(1, self.max_ms.max(self.initial_ms).max(1))
    }
}

/// A number from 0 to `most`, in proportion to `chance` within `u64`.
pub(crate) fn pick(most: u64, chance: u64) -> u64 {
    let scaled = ((u128::from(most) + 1) * u128::from(chance)) >> 64;
    u64::try_from(scaled).unwrap_or(most)
}

fn percent_of(value: u64, percent: u32) -> u64 {
    u64::try_from(u128::from(value) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases_ms(backoff: Backoff, count: usize) -> Vec<u64> {
        let mut last_ms = None;
        std::iter::repeat_with(|| {
            last_ms = Some(backoff.next_base_ms(last_ms));
            last_ms.unwrap()
        })
        .take(count)
        .collect()
    }

    #[test]
    fn doubles_up_to_five_minutes_by_default() {
        let expected = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(|seconds| seconds * 1_000);
        assert_eq!(bases_ms(Backoff::default(), 11), expected);
    }

    #[test]
    fn jitter_reaches_both_ends_and_never_the_other_side_of_the_maximum() {
        let backoff = Backoff::default();
        assert_eq!(backoff.with_jitter_ms(1_000, 0), 800);
        assert_eq!(backoff.with_jitter_ms(1_000, u64::MAX / 2), 1_000);
        assert_eq!(backoff.with_jitter_ms(1_000, u64::MAX), 1_200);
        assert_eq!(backoff.with_jitter_ms(300_000, u64::MAX), 300_000);
    }

    #[test]
    fn settings_out_of_range_count_as_the_nearest_allowed() {
        let backoff = Backoff {
            initial_ms: 0,
            factor_percent: 0,
            max_ms: 0,
            jitter_percent: 900,
        };
        assert_eq!(bases_ms(backoff, 3), [1, 1, 1]);
        assert_eq!(backoff.with_jitter_ms(1, 0), 1);
        let endless = Backoff {
            initial_ms: u64::MAX,
            factor_percent: u32::MAX,
            max_ms: u64::MAX,
            jitter_percent: 100,
        };
        assert_eq!(bases_ms(endless, 2), [u64::MAX, u64::MAX]);
        assert_eq!(endless.with_jitter_ms(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn picks_from_nothing_to_all() {
        for (most, chance, expected) in [
            (0, u64::MAX, 0),
            (9, 0, 0),
            (9, u64::MAX, 9),
            (u64::MAX, u64::MAX, u64::MAX),
        ] {
            assert_eq!(pick(most, chance), expected, "pick({most}, {chance})");
        }
    }
}
