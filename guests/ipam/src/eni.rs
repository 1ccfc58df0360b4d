//! One network interface and its addresses: which are free, and which of those to give out first.
//!
//! Knows no keys: an address is free or taken here; other modules know its holder.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::rests::Cooling;

/// The identity of an interface. Lists are in its order: by device number, then by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EniKey {
    /// as a signed number; several interfaces may have the same
    pub(crate) device_number: i32,
    /// unique
    pub(crate) id: Rc<str>,
}

/// The properties of an interface, without its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traits {
    /// the node's first interface, which never goes back to the cloud
    pub(crate) is_primary: bool,
    /// an interface that carries others
    pub(crate) is_trunk: bool,
    /// when it was added here
    pub(crate) created_at_ms: u64,
}

/// A network interface.
#[derive(Clone, Debug)]
pub(crate) struct Eni {
    /// What it is.
    pub(crate) traits: Traits,
    /// Every address, and when it was last unassigned.
    addresses: BTreeMap<Ipv4Addr, Option<u64>>,
    /// Free and never unassigned: these go out first.
    fresh: BTreeSet<Ipv4Addr>,
    /// Free and unassigned at some time: the longest unassigned goes out first.
    used: BTreeSet<(u64, Ipv4Addr)>,
}

impl Eni {
    /// An interface without addresses.
    pub(crate) fn new(traits: Traits) -> Self {
        Self {
            traits,
            addresses: BTreeMap::new(),
            fresh: BTreeSet::new(),
            used: BTreeSet::new(),
        }
    }

    /// Adds a new address to this interface, as taken.
    pub(crate) fn add_taken(&mut self, address: Ipv4Addr, unassigned_at_ms: Option<u64>) {
        self.addresses.insert(address, unassigned_at_ms);
    }

    /// Makes an address of this interface free.
    pub(crate) fn free(&mut self, address: Ipv4Addr) {
        match self.addresses.get(&address) {
            Some(None) => _ = self.fresh.insert(address),
            Some(&Some(time)) => _ = self.used.insert((time, address)),
            None => {}
        }
    }

    /// Takes an address; false if it was not free.
    pub(crate) fn take(&mut self, address: Ipv4Addr) -> bool {
        match self.addresses.get(&address) {
            Some(None) => self.fresh.remove(&address),
            Some(&Some(time)) => self.used.remove(&(time, address)),
            None => false,
        }
    }

    /// Removes the address; returns when it was last unassigned.
    pub(crate) fn remove(&mut self, address: Ipv4Addr) -> Option<u64> {
        self.take(address);
        self.addresses.remove(&address).flatten()
    }

    /// When the address was last unassigned. `None` also if this interface does not have it.
    pub(crate) fn unassigned_at_ms(&self, address: Ipv4Addr) -> Option<u64> {
        self.addresses.get(&address).copied().flatten()
    }

    /// Sets when the address was last unassigned; it stays free or taken. Returns the earlier time.
    pub(crate) fn replace_unassigned_at(&mut self, address: Ipv4Addr, unassigned_at_ms: Option<u64>) -> Option<u64> {
        let was_free = self.take(address);
        let time = self.addresses.get_mut(&address)?;
        let before = std::mem::replace(time, unassigned_at_ms);
        if was_free {
            self.free(address);
        }
        before
    }

    /// If the clock went back, moves later times of free addresses to now.
    pub(crate) fn none_after(&mut self, now_ms: u64) {
        while let Some(&(time, address)) = self.used.last()
            && time > now_ms
        {
            self.replace_unassigned_at(address, Some(now_ms));
        }
    }

    /// The address to give out next.
    pub(crate) fn candidate(&self, cooling: Cooling, now_ms: u64) -> Option<Ipv4Addr> {
        self.fresh.first().copied().or_else(|| {
            // The longest unassigned address: if it rests, all do.
            let &(time, address) = self.used.first()?;
            (!cooling.rests(time, now_ms)).then_some(address)
        })
    }

    /// The free addresses that rest, with the time of their unassignment, the latest first.
    pub(crate) fn resting(&self, cooling: Cooling, now_ms: u64) -> impl Iterator<Item = (Ipv4Addr, u64)> {
        self.used
            .iter()
            .rev()
            .take_while(move |(time, _)| cooling.rests(*time, now_ms))
            .map(|&(time, address)| (address, time))
    }

    /// All addresses ascending, with the time of their last unassignment.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (Ipv4Addr, Option<u64>)> {
        self.addresses.iter().map(|(&address, &time)| (address, time))
    }

    /// The number of addresses.
    pub(crate) fn total(&self) -> usize {
        self.addresses.len()
    }

    /// The number of free addresses.
    pub(crate) fn free_count(&self) -> usize {
        self.fresh.len() + self.used.len()
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

    fn eni(times: &[(&str, Option<u64>)]) -> Eni {
        let mut eni = Eni::new(Traits {
            is_primary: false,
            is_trunk: false,
            created_at_ms: 0,
        });
        for (text, time) in times {
            eni.add_taken(address(text), *time);
            eni.free(address(text));
        }
        eni
    }

    #[test]
    fn interfaces_are_ordered_by_signed_device_number_then_id() {
        let key = |device_number, id: &str| EniKey {
            device_number,
            id: Rc::from(id),
        };
        let ordered = [
            key(-2, "z"),
            key(0, ""),
            key(0, "Z"),
            key(0, "a"),
            key(0, "é"),
            key(7, "a"),
        ];
        assert!(ordered.is_sorted_by(|left, right| left < right));
    }

    #[test]
    fn never_unassigned_first_then_the_longest_ago_then_by_number() {
        let cooling = Cooling::of_ms(10);
        let mut eni = eni(&[
            ("10.0.0.1", Some(50)),
            ("10.0.0.9", Some(40)),
            ("10.0.0.2", Some(40)),
            ("10.0.0.7", None),
            ("10.0.0.5", None),
        ]);
        for expected in ["10.0.0.5", "10.0.0.7", "10.0.0.2", "10.0.0.9"] {
            assert_eq!(eni.candidate(cooling, 55), Some(address(expected)));
            assert!(eni.take(address(expected)));
        }
        assert_eq!(eni.candidate(cooling, 60), None);
        assert_eq!(eni.candidate(cooling, 61), Some(address("10.0.0.1")));
        assert_eq!((eni.total(), eni.free_count(), eni.taken_count()), (5, 1, 4));
    }

    #[test]
    fn a_new_time_keeps_an_address_free_or_taken() {
        let cooling = Cooling::of_ms(10);
        let mut eni = eni(&[("10.0.0.1", None), ("10.0.0.2", None)]);
        let [one, two] = [address("10.0.0.1"), address("10.0.0.2")];
        assert!(eni.take(two));
        assert!(!eni.take(two));
        assert_eq!(eni.replace_unassigned_at(one, Some(5)), None);
        assert_eq!(eni.replace_unassigned_at(two, Some(6)), None);
        assert_eq!(eni.resting(cooling, 5).collect::<Vec<_>>(), [(one, 5)]);
        eni.free(two);
        assert_eq!(eni.resting(cooling, 16).collect::<Vec<_>>(), [(two, 6)]);
        assert_eq!(eni.remove(two), Some(6));
        assert_eq!(eni.replace_unassigned_at(two, Some(9)), None);
        assert_eq!(eni.addresses().collect::<Vec<_>>(), [(one, Some(5))]);
    }
}
