//! How long an unassigned address rests, and the rests of addresses that no ENI has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// How long an address rests after its unassignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cooling {
    period_ms: u64,
}

impl Cooling {
    /// 0 means no rest.
    pub(crate) const fn of_ms(period_ms: u64) -> Self {
        Self { period_ms }
    }

    /// Whether an address that was unassigned at that time still rests, the end of the period included. If the clock
    /// went back since, it rests; its time is moved to now before anything else is decided, so that the rest has an
    /// end.
    pub(crate) const fn rests(self, unassigned_at_ms: u64, now_ms: u64) -> bool {
        self.period_ms != 0 && now_ms.saturating_sub(unassigned_at_ms) <= self.period_ms
    }
}

/// Addresses of no ENI, and when they were unassigned: one that is added again in time goes on resting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rests {
    by_address: BTreeMap<Ipv4Addr, u64>,
    by_time: BTreeSet<(u64, Ipv4Addr)>,
}

impl Rests {
    /// Sets when the address was unassigned; `None` forgets it. Returns the earlier value.
    pub(crate) fn replace(&mut self, address: Ipv4Addr, unassigned_at_ms: Option<u64>) -> Option<u64> {
        let before = match unassigned_at_ms {
            Some(time) => self.by_address.insert(address, time),
            None => self.by_address.remove(&address),
        };
        if let Some(time) = before {
            self.by_time.remove(&(time, address));
        }
        if let Some(time) = unassigned_at_ms {
            self.by_time.insert((time, address));
        }
        before
    }

    /// `None` if the address is not remembered.
    pub(crate) fn get(&self, address: Ipv4Addr) -> Option<u64> {
        self.by_address.get(&address).copied()
    }

    /// Forgets rests that are over.
    pub(crate) fn forget_over(&mut self, cooling: Cooling, now_ms: u64) {
        while let Some(&(time, address)) = self.by_time.first() {
            if cooling.rests(time, now_ms) {
                return;
            }
            self.replace(address, None);
        }
    }

    /// If the clock went back, moves later times to now.
    pub(crate) fn none_after(&mut self, now_ms: u64) {
        while let Some(&(time, address)) = self.by_time.last()
            && time > now_ms
        {
            self.replace(address, Some(now_ms));
        }
    }

    /// All of them, by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ipv4Addr, u64)> {
        self.by_address.iter().map(|(&address, &time)| (address, time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_exactly_the_periods_end_an_address_still_rests() {
        let cooling = Cooling::of_ms(30_000);
        assert!(cooling.rests(1000, 31_000));
        assert!(!cooling.rests(1000, 31_001));
        assert!(cooling.rests(1000, 10), "the clock has gone back, at this look");
        assert!(cooling.rests(u64::MAX, 0));
        assert!(!cooling.rests(0, u64::MAX));
        assert!(!Cooling::of_ms(0).rests(5, 5), "0 is off");
    }

    #[test]
    fn after_a_step_back_of_the_clock_a_rest_lasts_one_period_from_now() {
        let cooling = Cooling::of_ms(10);
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let mut rests = Rests::default();
        rests.replace(one, Some(1000));
        rests.replace(two, Some(3));
        rests.none_after(5);
        assert_eq!(rests.iter().collect::<Vec<_>>(), [(one, 5), (two, 3)]);
        rests.forget_over(cooling, 16);
        assert_eq!(rests.iter().count(), 0);
    }

    #[test]
    fn what_is_over_is_forgotten_and_the_rest_stays() {
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let mut rests = Rests::default();
        assert_eq!(rests.replace(two, Some(5)), None);
        assert_eq!(rests.replace(one, Some(50)), None);
        assert_eq!(rests.replace(two, Some(6)), Some(5));
        rests.forget_over(Cooling::of_ms(10), 16);
        assert_eq!(rests.iter().collect::<Vec<_>>(), [(one, 50), (two, 6)]);
        rests.forget_over(Cooling::of_ms(10), 17);
        assert_eq!(rests.iter().collect::<Vec<_>>(), [(one, 50)]);
        assert_eq!((rests.get(one), rests.get(two)), (Some(50), None));
        assert_eq!(rests.replace(one, None), Some(50));
        assert!(rests.by_time.is_empty());
    }
}
