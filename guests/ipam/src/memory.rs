//! The guest's whole state: interfaces, addresses, and which key holds which.
//!
//! Keeps its indexes consistent and decides nothing: the caller checks that each change is allowed.
//!
//! An allocation is assigned if an interface has its address, else held. One map has both, so that a held allocation
//! becomes assigned as soon as its address appears.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::rc::Rc;

use serde::Deserialize;

use crate::addresses::{Addresses, Cooling};
use crate::key::Key;
use crate::stored;

/// The holder of an address.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    /// its key
    pub(crate) key: Key,
    /// The allocation as stored. A whole checkpoint consists of these pieces only, so writing it costs little more than
    /// copying them.
    pub(crate) stored: Rc<str>,
}

impl Holder {
    /// The holder for this key and address.
    pub(crate) fn new(key: Key, address: Ipv4Addr) -> Self {
        let stored = stored::allocation(&key, address);
        Self { key, stored }
    }
}

/// Interfaces, addresses and allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    enis: BTreeMap<EniKey, Eni>,
    places: BTreeMap<Ipv4Addr, EniKey>,
    holders: BTreeMap<Ipv4Addr, Holder>,
    by_key: BTreeMap<Key, Ipv4Addr>,
    held: BTreeSet<Ipv4Addr>,
    /// Addresses that no interface has and that rest.
    rests: Addresses,
}

impl Memory {
    /// The interface with this id; a node has few of them.
    pub(crate) fn eni(&self, id: &str) -> Option<(&EniKey, &Eni)> {
        self.enis.iter().find(|(key, _)| &*key.id == id)
    }

    /// All interfaces in order.
    pub(crate) fn enis(&self) -> &BTreeMap<EniKey, Eni> {
        &self.enis
    }

    /// The interface that has the address.
    pub(crate) fn place(&self, address: Ipv4Addr) -> Option<&EniKey> {
        self.places.get(&address)
    }

    /// The holder of the address, assigned or held.
    pub(crate) fn holder(&self, address: Ipv4Addr) -> Option<&Holder> {
        self.holders.get(&address)
    }

    /// The address of the key, assigned or held.
    pub(crate) fn address_of(&self, key: &Key) -> Option<Ipv4Addr> {
        self.by_key.get(key).copied()
    }

    /// The text of a checkpoint of all allocations.
    pub(crate) fn checkpoint(&self) -> String {
        let allocations = self.holders.values().map(|holder| &*holder.stored);
        stored::checkpoint(&allocations.collect::<Vec<_>>())
    }

    /// The held allocations by address.
    pub(crate) fn held(&self) -> impl Iterator<Item = (Ipv4Addr, &Holder)> {
        let held = self.held.iter();
        held.filter_map(|&address| Some((address, self.holder(address)?)))
    }

    /// The number of addresses of the interfaces.
    pub(crate) fn total_count(&self) -> usize {
        self.places.len()
    }

    /// The number of assigned addresses of interfaces.
    pub(crate) fn assigned_count(&self) -> usize {
        self.holders.len() - self.held.len()
    }

    /// The number of held allocations.
    pub(crate) fn held_count(&self) -> usize {
        self.held.len()
    }

    /// The rests of addresses that no interface has.
    pub(crate) fn rests(&self) -> &Addresses {
        &self.rests
    }

    /// Takes note of the time: forgets rests that are over. If the clock went back, addresses with a later time rest
    /// from now on; otherwise they would rest until the clock has caught up.
    pub(crate) fn look_at_clock(&mut self, cooling: Cooling, now_ms: u64) {
        self.rests.none_after(now_ms);
        for eni in self.enis.values_mut() {
            eni.addresses.none_after(now_ms);
        }
        self.rests.forget_over(cooling, now_ms);
    }

    /// Adds a new interface, without addresses.
    pub(crate) fn add_eni(&mut self, id: &str, device_number: i32, eni: Eni) {
        let id = Rc::from(id);
        self.enis.insert(EniKey { device_number, id }, eni);
    }

    /// Removes an interface and its addresses with their allocations. Does not remember their rests.
    pub(crate) fn remove_eni(&mut self, key: &EniKey) {
        let Some(eni) = self.enis.remove(key) else { return };
        for (address, _) in eni.addresses.iter() {
            self.places.remove(&address);
            self.forget_holder(address);
        }
    }

    /// Adds an address that no interface has: assigned if it was held, else free. It keeps the time of its last
    /// unassignment if memory knows it.
    pub(crate) fn add_address(&mut self, place: &EniKey, address: Ipv4Addr) {
        let Some(eni) = self.enis.get_mut(place) else { return };
        eni.addresses.add_taken(address, self.rests.remove(address));
        self.places.insert(address, place.clone());
        if !self.held.remove(&address) {
            eni.addresses.free(address);
        }
    }

    /// Removes an address with its allocation from its interface; returns when it was last unassigned.
    pub(crate) fn remove_address(&mut self, address: Ipv4Addr) -> Option<u64> {
        self.release(address);
        let place = self.places.remove(&address)?;
        self.enis.get_mut(&place)?.addresses.remove(address)
    }

    /// Gives a free address to a key that has none. If no interface has the address, it is held.
    pub(crate) fn allocate(&mut self, address: Ipv4Addr, holder: Holder) {
        match self.beside(address) {
            Some(addresses) => addresses.take(address),
            None => self.held.insert(address),
        };
        self.by_key.insert(holder.key.clone(), address);
        self.holders.insert(address, holder);
    }

    /// Ends the allocation of the address and keeps its time of unassignment; returns the holder.
    pub(crate) fn release(&mut self, address: Ipv4Addr) -> Option<Holder> {
        let holder = self.forget_holder(address)?;
        match self.beside(address) {
            Some(addresses) => addresses.free(address),
            None => _ = self.held.remove(&address),
        }
        Some(holder)
    }

    /// The addresses of the interface that has this one.
    fn beside(&mut self, address: Ipv4Addr) -> Option<&mut Addresses> {
        let eni = self.enis.get_mut(self.places.get(&address)?)?;
        Some(&mut eni.addresses)
    }

    fn forget_holder(&mut self, address: Ipv4Addr) -> Option<Holder> {
        let holder = self.holders.remove(&address)?;
        self.by_key.remove(&holder.key);
        Some(holder)
    }

    /// When the address was last unassigned, as far as memory knows.
    pub(crate) fn unassigned_at_ms(&self, address: Ipv4Addr) -> Option<u64> {
        let eni = self.places.get(&address).and_then(|place| self.enis.get(place));
        eni.map_or(&self.rests, |eni| &eni.addresses).unassigned_at_ms(address)
    }

    /// Sets when the address was last unassigned; `None` means never, or not remembered. Returns the earlier value.
    pub(crate) fn replace_unassigned_at(&mut self, address: Ipv4Addr, unassigned_at_ms: Option<u64>) -> Option<u64> {
        if let Some(addresses) = self.beside(address) {
            return addresses.replace_unassigned_at(address, unassigned_at_ms);
        }
        let before = self.rests.remove(address);
        if unassigned_at_ms.is_some() {
            self.rests.add_taken(address, unassigned_at_ms);
            self.rests.free(address);
        }
        before
    }

    /// The address rests from now on; returns its previous time of unassignment.
    pub(crate) fn rest(&mut self, address: Ipv4Addr, cooling: Cooling, now_ms: u64) -> Option<u64> {
        // Interfaces show the time even if it means no rest; elsewhere memory keeps only rests.
        let remembered = self.places.contains_key(&address) || cooling.rests(now_ms, now_ms);
        self.replace_unassigned_at(address, remembered.then_some(now_ms))
    }

    /// The address to give out next: of the first interface that has one.
    pub(crate) fn candidate(&self, cooling: Cooling, now_ms: u64) -> Option<(EniKey, Ipv4Addr)> {
        let mut enis = self.enis.iter();
        enis.find_map(|(key, eni)| Some((key.clone(), eni.addresses.candidate(cooling, now_ms)?)))
    }

    /// Every unassigned address that rests, in an interface or remembered, by address.
    pub(crate) fn all_resting(&self, cooling: Cooling, now_ms: u64) -> Vec<(Ipv4Addr, u64)> {
        let in_enis = self.enis.values().map(|eni| &eni.addresses);
        let everywhere = in_enis.chain([&self.rests]);
        let mut all: Vec<_> = everywhere.flat_map(|some| some.resting(cooling, now_ms)).collect();
        all.sort_unstable();
        all
    }
}

/// The identity of an interface. Lists are in its order: by device number, then by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EniKey {
    /// as a signed number; several interfaces may have the same
    pub(crate) device_number: i32,
    /// unique
    pub(crate) id: Rc<str>,
}

/// A network interface. From JSON it has no addresses yet.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Eni {
    /// the node's first interface, which never goes back to the cloud
    pub(crate) is_primary: bool,
    /// an interface that carries others
    pub(crate) is_trunk: bool,
    /// when it was added here
    pub(crate) created_at_ms: u64,
    #[serde(skip)]
    pub(crate) addresses: Addresses,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::exports::trueup::ipam::datastore::IpamKey;

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

    const COOLING: Cooling = Cooling::of_ms(10);

    fn address(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    fn key(container_id: &str) -> Key {
        Key::new(IpamKey {
            network_name: "net".to_owned(),
            container_id: container_id.to_owned(),
            if_name: "eth0".to_owned(),
        })
    }

    fn memory(enis: &[(&str, i32, &[&str])]) -> Memory {
        let mut memory = Memory::default();
        for (id, device_number, addresses) in enis {
            let eni = Eni {
                is_primary: false,
                is_trunk: false,
                created_at_ms: 0,
                addresses: Addresses::default(),
            };
            memory.add_eni(id, *device_number, eni);
            let key = memory.eni(id).unwrap().0.clone();
            for text in *addresses {
                memory.add_address(&key, address(text));
            }
        }
        memory
    }

    fn counts(memory: &Memory) -> [usize; 4] {
        [
            memory.enis().len(),
            memory.total_count(),
            memory.assigned_count(),
            memory.held_count(),
        ]
    }

    fn given_out(memory: &mut Memory, now_ms: u64) -> Option<Ipv4Addr> {
        let (_, address) = memory.candidate(COOLING, now_ms)?;
        memory.allocate(address, Holder::new(key(&address.to_string()), address));
        Some(address)
    }

    #[test]
    fn the_first_interface_with_an_address_out_of_rest_gives_it() {
        let mut memory = memory(&[
            ("b", 2, &["10.0.2.1"]),
            ("c", 1, &["10.0.1.1"]),
            ("a", 2, &["10.0.3.1"]),
        ]);
        for expected in ["10.0.1.1", "10.0.3.1", "10.0.2.1"] {
            assert_eq!(given_out(&mut memory, 0), Some(address(expected)));
        }
        assert_eq!(given_out(&mut memory, 0), None);
        for (text, now_ms) in [("10.0.2.1", 100), ("10.0.1.1", 105)] {
            memory.release(address(text));
            memory.rest(address(text), COOLING, now_ms);
        }
        assert_eq!(given_out(&mut memory, 110), None);
        // Both have rested, the clock goes back, and both come out of their rest again.
        assert_eq!(memory.candidate(COOLING, 200).unwrap().1, address("10.0.1.1"));
        assert_eq!(given_out(&mut memory, 110), None);
        assert_eq!(memory.candidate(COOLING, 111).unwrap().1, address("10.0.2.1"));
        assert_eq!(given_out(&mut memory, 116), Some(address("10.0.1.1")));
        assert_eq!(given_out(&mut memory, 116), Some(address("10.0.2.1")));
    }

    #[test]
    fn after_a_step_back_of_the_clock_addresses_rest_one_period_from_now() {
        let mut memory = memory(&[("a", 1, &["10.0.0.1", "10.0.0.2"])]);
        for (text, now_ms) in [("10.0.0.1", 100_000), ("10.0.0.2", 100_001)] {
            assert_eq!(given_out(&mut memory, 0), Some(address(text)));
            memory.release(address(text));
            memory.rest(address(text), COOLING, now_ms);
        }
        assert_eq!(memory.candidate(COOLING, 100_002), None);
        for (now_ms, expected) in [(50, None), (60, None), (61, Some(address("10.0.0.1")))] {
            memory.look_at_clock(COOLING, now_ms);
            assert_eq!(given_out(&mut memory, now_ms), expected, "at {now_ms}");
        }
    }

    #[test]
    fn what_is_held_becomes_assigned_by_its_address() {
        let mut memory = memory(&[("a", 1, &["10.0.0.1"])]);
        let nowhere = address("10.9.9.9");
        memory.allocate(nowhere, Holder::new(key("c1"), nowhere));
        assert_eq!(counts(&memory), [1, 1, 0, 1]);
        let eni = memory.eni("a").unwrap().0.clone();
        memory.add_address(&eni, nowhere);
        assert_eq!(counts(&memory), [1, 2, 1, 0]);
        assert_eq!(memory.address_of(&key("c1")), Some(nowhere));
        memory.remove_eni(&eni);
        assert_eq!(counts(&memory), [0, 0, 0, 0]);
        assert_eq!(memory.address_of(&key("c1")), None);
        assert!(memory.candidate(COOLING, 0).is_none());
    }

    #[test]
    fn a_rest_outside_any_interface_is_taken_along_and_only_where_it_is_one() {
        let mut memory = memory(&[("a", 1, &[])]);
        let (one, two) = (address("10.0.0.1"), address("10.0.0.2"));
        assert_eq!(memory.rest(one, COOLING, 7), None);
        assert_eq!(memory.rest(two, Cooling::of_ms(0), 7), None);
        assert_eq!(memory.all_resting(COOLING, 17), [(one, 7)]);
        let key = memory.eni("a").unwrap().0.clone();
        memory.add_address(&key, one);
        memory.add_address(&key, two);
        assert_eq!(memory.unassigned_at_ms(one), Some(7));
        assert_eq!(memory.unassigned_at_ms(two), None);
        assert_eq!(memory.rests().total(), 0);
        assert_eq!(memory.all_resting(COOLING, 17), [(one, 7)]);
        assert_eq!(memory.all_resting(COOLING, 18), []);
        assert_eq!(memory.remove_address(one), Some(7));
        assert_eq!(counts(&memory), [1, 1, 0, 0]);
    }
}
