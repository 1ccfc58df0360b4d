//! How long to pause between two looks.
//!
//! Pure: randomness is an argument. Whole milliseconds; all divisions round down.

use crate::settings::Settings;

/// The `n`-th pause, counted from 0. `chance` gives a number uniform over all of u64; without jitter it is not called.
pub fn pause_ms(settings: &Settings, n: u32, chance: impl FnOnce() -> u64) -> u64 {
    // The maximum caps it from the second pause on; an initial pause above the maximum remains, and the cap of the
    // whole pause bounds it.
    let mut pause = settings.backoff_initial_ms;
    for _ in 0..n {
        let grown = pause.saturating_mul(settings.backoff_factor_percent) / 100;
        let next = grown.min(settings.backoff_max_ms);
        // It is constant from here: at the maximum, without growth, or with growth that rounds to nothing.
        if next == pause {
            break;
        }
        pause = next;
    }
    if settings.backoff_jitter_percent != 0 {
        let extra = pause.saturating_mul(settings.backoff_jitter_percent) / 100;
        // Below `extra`, so it fits again.
        let jitter = u64::try_from((u128::from(extra) * u128::from(chance())) >> 64).unwrap_or(extra);
        pause = pause.saturating_add(jitter);
    }
    pause.min(settings.backoff_max_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_grows_by_half_to_five_minutes() {
        let pauses: Vec<u64> = (0..19).map(|n| pause_ms(&crate::tests::DEFAULT, n, || 0)).collect();
        assert_eq!(pauses[..7], [1000, 1500, 2250, 3375, 5062, 7593, 11389]);
        assert_eq!(pauses[14..], [291_871, 300_000, 300_000, 300_000, 300_000]);
    }

    #[test]
    fn chance_adds_up_to_the_jitter() {
        let pause = |r| pause_ms(&crate::tests::DEFAULT, 0, || r);
        assert_eq!((pause(0), pause(1 << 63), pause(u64::MAX)), (1000, 1750, 2499));
        assert_eq!(pause_ms(&crate::tests::DEFAULT, 30, || u64::MAX), 300_000);
    }

    #[test]
    fn without_jitter_chance_is_not_asked() {
        let settings = Settings {
            backoff_jitter_percent: 0,
            ..crate::tests::DEFAULT
        };
        assert_eq!(pause_ms(&settings, 1, || panic!("asked")), 1500);
    }

    #[test]
    fn an_initial_pause_above_the_maximum_is_cut() {
        let settings = Settings {
            backoff_initial_ms: 5000,
            backoff_max_ms: 10,
            ..crate::tests::DEFAULT
        };
        assert_eq!((pause_ms(&settings, 0, || 9), pause_ms(&settings, 1, || 9)), (10, 10));
    }

    proptest! {
        #[test]
        fn no_pause_is_above_the_maximum_or_shorter_than_the_one_before(
            initial in 1..=3_600_000_u64, factor in 100..=1000_u64, max in 1..=86_400_000_u64, jitter in 0..=1000_u64,
            n: u32, r: u64,
        ) {
            let settings = Settings {
                backoff_initial_ms: initial, backoff_factor_percent: factor, backoff_max_ms: max,
                backoff_jitter_percent: jitter, ..crate::tests::DEFAULT
            };
            prop_assert!(pause_ms(&settings, n, || r) <= max);
            prop_assert!(pause_ms(&settings, n, || 0) <= pause_ms(&settings, n.saturating_add(1), || 0));
        }
    }
}
