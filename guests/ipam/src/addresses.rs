//! Addresses with the times of their last unassignment: which are free, which of those rest, and which go out first.
//!
//! Knows no keys: an address is free or taken here; other modules know its holder.

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

/// The addresses of one interface, or those that rest and that no interface has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    /// Every address, and when it was last unassigned.
    times: BTreeMap<Ipv4Addr, Option<u64>>,
    /// The free ones in the order in which they go out: first those never unassigned, then the longest unassigned.
    free: BTreeSet<(Option<u64>, Ipv4Addr)>,
}

impl Addresses {
    /// Adds a new address, as taken.
    pub(crate) fn add_taken(&mut self, address: Ipv4Addr, unassigned_at_ms: Option<u64>) {
        self.times.insert(address, unassigned_at_ms);
    }

    /// Makes one of these addresses free.
    pub(crate) fn free(&mut self, address: Ipv4Addr) {
        if let Some(&time) = self.times.get(&address) {
            self.free.insert((time, address));
        }
    }

    /// Takes an address; false if it was not free.
    pub(crate) fn take(&mut self, address: Ipv4Addr) -> bool {
        let time = self.times.get(&address);
        time.is_some_and(|&time| self.free.remove(&(time, address)))
    }

    /// Removes the address; returns when it was last unassigned.
    pub(crate) fn remove(&mut self, address: Ipv4Addr) -> Option<u64> {
        self.take(address);
        self.times.remove(&address).flatten()
    }

    /// When the address was last unassigned. `None` also if it is not one of these.
    pub(crate) fn unassigned_at_ms(&self, address: Ipv4Addr) -> Option<u64> {
        self.times.get(&address).copied().flatten()
    }

    /// Sets when the address was last unassigned; it stays free or taken. Returns the earlier time.
    pub(crate) fn replace_unassigned_at(&mut self, address: Ipv4Addr, unassigned_at_ms: Option<u64>) -> Option<u64> {
        let was_free = self.take(address);
        let time = self.times.get_mut(&address)?;
        let before = std::mem::replace(time, unassigned_at_ms);
        if was_free {
            self.free(address);
        }
        before
    }

    /// If the clock went back, moves later times of free addresses to now.
    pub(crate) fn none_after(&mut self, now_ms: u64) {
        while let Some(&(time, address)) = self.free.last()
            && time > Some(now_ms)
        {
            self.replace_unassigned_at(address, Some(now_ms));
        }
    }

    /// Forgets free addresses whose rest is over.
    pub(crate) fn forget_over(&mut self, cooling: Cooling, now_ms: u64) {
        while let Some(&(Some(time), address)) = self.free.first()
            && !cooling.rests(time, now_ms)
        {
            self.remove(address);
        }
    }

    /// The address to give out next. It is the longest unassigned: if it rests, all do.
    pub(crate) fn candidate(&self, cooling: Cooling, now_ms: u64) -> Option<Ipv4Addr> {
        let &(time, address) = self.free.first()?;
        let rests = time.is_some_and(|time| cooling.rests(time, now_ms));
        (!rests).then_some(address)
    }

    /// The free addresses that rest, with the time of their unassignment, the latest first.
    pub(crate) fn resting(&self, cooling: Cooling, now_ms: u64) -> impl Iterator<Item = (Ipv4Addr, u64)> {
        let latest_first = self.free.iter().rev();
        let times = latest_first.map_while(|&(time, address)| Some((address, time?)));
        times.take_while(move |&(_, time)| cooling.rests(time, now_ms))
    }

    /// All addresses ascending, with the time of their last unassignment.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ipv4Addr, Option<u64>)> {
        self.times.iter().map(|(&address, &time)| (address, time))
    }

    /// The number of addresses.
    pub(crate) fn total(&self) -> usize {
        self.times.len()
    }

    /// The number of free addresses.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// The number of taken addresses.
    pub(crate) fn taken_count(&self) -> usize {
        self.total() - self.free_count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    fn addresses(times: &[(&str, Option<u64>)]) -> Addresses {
        let mut addresses = Addresses::default();
        for (text, time) in times {
            addresses.add_taken(address(text), *time);
            addresses.free(address(text));
        }
        addresses
    }

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
        let [one, two] = [address("10.0.0.1"), address("10.0.0.2")];
        let mut rests = addresses(&[("10.0.0.1", Some(1000)), ("10.0.0.2", Some(3))]);
        rests.none_after(5);
        assert_eq!(rests.iter().collect::<Vec<_>>(), [(one, Some(5)), (two, Some(3))]);
        rests.forget_over(Cooling::of_ms(10), 16);
        assert_eq!(rests.total(), 0);
    }

    #[test]
    fn what_is_over_is_forgotten_and_the_rest_stays() {
        let [one, two] = [address("10.0.0.1"), address("10.0.0.2")];
        let mut rests = addresses(&[("10.0.0.1", Some(50)), ("10.0.0.2", Some(6))]);
        rests.forget_over(Cooling::of_ms(10), 16);
        assert_eq!(rests.iter().collect::<Vec<_>>(), [(one, Some(50)), (two, Some(6))]);
        rests.forget_over(Cooling::of_ms(10), 17);
        assert_eq!(rests.iter().collect::<Vec<_>>(), [(one, Some(50))]);
        assert_eq!(rests.remove(one), Some(50));
        assert_eq!(rests.free_count(), 0);
    }

    #[test]
    fn never_unassigned_first_then_the_longest_ago_then_by_number() {
        let cooling = Cooling::of_ms(10);
        let mut addresses = addresses(&[
            ("10.0.0.1", Some(50)),
            ("10.0.0.9", Some(40)),
            ("10.0.0.2", Some(40)),
            ("10.0.0.7", None),
            ("10.0.0.5", None),
        ]);
        for expected in ["10.0.0.5", "10.0.0.7", "10.0.0.2", "10.0.0.9"] {
            assert_eq!(addresses.candidate(cooling, 55), Some(address(expected)));
            assert!(addresses.take(address(expected)));
        }
        assert_eq!(addresses.candidate(cooling, 60), None);
        assert_eq!(addresses.candidate(cooling, 61), Some(address("10.0.0.1")));
        assert_eq!(
            (addresses.total(), addresses.free_count(), addresses.taken_count()),
            (5, 1, 4)
        );
    }

    #[test]
    fn a_new_time_keeps_an_address_free_or_taken() {
        let cooling = Cooling::of_ms(10);
        let mut addresses = addresses(&[("10.0.0.1", None), ("10.0.0.2", None)]);
        let [one, two] = [address("10.0.0.1"), address("10.0.0.2")];
        assert!(addresses.take(two));
        assert!(!addresses.take(two));
        assert_eq!(addresses.replace_unassigned_at(one, Some(5)), None);
        assert_eq!(addresses.replace_unassigned_at(two, Some(6)), None);
        assert_eq!(addresses.resting(cooling, 5).collect::<Vec<_>>(), [(one, 5)]);
        addresses.free(two);
        assert_eq!(addresses.resting(cooling, 16).collect::<Vec<_>>(), [(two, 6)]);
        assert_eq!(addresses.remove(two), Some(6));
        assert_eq!(addresses.replace_unassigned_at(two, Some(9)), None);
        assert_eq!(addresses.iter().collect::<Vec<_>>(), [(one, Some(5))]);
    }
}
