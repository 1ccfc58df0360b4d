//! When changes of Services took effect. Each change requests an address of its own, so an address identifies its
//! change.
//!
//! Knows neither hosts nor servers; `benches/kubernetes/` makes the changes and observes their effects.
//!
//! ```text
//! change 7 -> 198.18.0.7 -> seen at -> time from change 7 to the first effect of it, or of a later one of its Service
//! ```

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// 198.18.0.0/15, the range for benchmarks (RFC 2544).
const FIRST: u32 = 0xC612_0000;

/// The number of addresses, and so of distinct changes.
pub const CHANGES_MAX: u32 = 1 << 17;

/// One change.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// The changed Service.
    pub service: usize,
    /// Right before the API server received it.
    pub at: Instant,
}

/// The address that a change requests; changes count from 0.
#[must_use]
pub fn address(change: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST + change % CHANGES_MAX)
}

/// The change that requested an address; `None` if no change did.
#[must_use]
pub fn change(address: &str) -> Option<u32> {
    let number = u32::from(address.parse::<Ipv4Addr>().ok()?);
    number.checked_sub(FIRST).filter(|change| *change < CHANGES_MAX)
}

/// The changes whose addresses are values in this JSON text, in its order.
pub fn in_text(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.split('"').filter_map(change)
}

/// When each change was seen first.
#[derive(Debug, Default)]
pub struct Effects(BTreeMap<u32, Instant>);

impl Effects {
    /// Records that a change is in effect; the first time counts.
    pub fn see(&mut self, change: u32, at: Instant) {
        let first = self.0.entry(change).or_insert(at);
        *first = at.min(*first);
    }

    /// How long each change took, from the shortest to the longest. `made` holds the changes from number `first` on. A
    /// superseded change took until a later one of its Service was seen.
    ///
    /// # Errors
    /// If the last change of a Service is not in effect, or was seen before it was made.
    pub fn times(&self, first: u32, made: &[Made]) -> anyhow::Result<Times> {
        let mut effective: BTreeMap<usize, Instant> = BTreeMap::new();
        let mut times = Vec::new();
        let mut superseded = 0;
        let end = first + u32::try_from(made.len())?;
        for (number, Made { service, at }) in (first..end).zip(made).rev() {
            let own = self.0.get(&number);
            superseded += u32::from(own.is_none());
            let soonest = own.into_iter().chain(effective.get(service)).min().copied();
            let seen =
                soonest.with_context(|| format!("change {number}, the last of service {service}, has no effect"))?;
            ensure!(
                seen >= *at,
                "change {number} of service {service} has an effect before it was made"
            );
            effective.insert(*service, seen);
            times.push(seen - *at);
        }
        times.sort();
        Ok(Times { times, superseded })
    }
}

/// How long changes took.
#[derive(Debug)]
pub struct Times {
    times: Vec<Duration>,
    /// How many were never in effect themselves, because a later one came first.
    pub superseded: u32,
}

impl Times {
    /// The time within which this percentage of the changes took effect; for 100, all of them.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times.get(rank - 1).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_which_change_it_is() {
        for number in [0, 1, 256, 70_000, CHANGES_MAX - 1] {
            assert_eq!(change(&address(number).to_string()), Some(number));
        }
        assert_eq!(address(257).to_string(), "198.18.1.1");
        for other in ["198.17.255.255", "198.20.0.0", "10.0.0.1", "web", ""] {
            assert_eq!(change(other), None, "{other}");
        }
        let text = r#"{"address":"198.18.0.9","ip":"192.0.2.1","addresses":["198.18.0.3"]}"#;
        assert_eq!(in_text(text).collect::<Vec<_>>(), [9, 3]);
    }

    #[test]
    fn a_superseded_change_counts_until_a_later_one_takes_effect() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let made = [(0, 0), (1, 10), (0, 20), (0, 30)].map(|(service, ms)| Made { service, at: at(ms) });
        let mut effects = Effects::default();
        effects.see(101, at(15));
        effects.see(101, at(12));
        effects.see(103, at(70));
        let times = effects.times(100, &made).unwrap();
        assert_eq!(times.superseded, 2);
        assert_eq!(times.times, [2, 40, 50, 70].map(Duration::from_millis));
        assert_eq!(
            [50, 75, 99, 100].map(|percent| times.percentile(percent).as_millis()),
            [40, 50, 70, 70]
        );
    }

    #[test]
    fn a_service_whose_last_change_has_no_effect_has_not_converged() {
        let at = Instant::now();
        let made = [Made { service: 3, at }, Made { service: 3, at }];
        let mut effects = Effects::default();
        effects.see(0, at);
        let error = effects.times(0, &made).unwrap_err().to_string();
        assert_eq!(error, "change 1, the last of service 3, has no effect");
    }
}
