//! What is to change for the guest to have the interfaces that it should have.
//!
//! Pure: knows what should be and what the guest has, and says which calls bring the one to the other. What can't be done
//! now (an address that a pod uses) is said again the next time. The guest alone knows what pods use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::Enis;
use crate::guests::ipam::EniInfos;

/// What does not change about an interface while the guest has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traits {
    pub(super) device_number: i32,
    pub(super) is_primary: bool,
    pub(super) is_trunk: bool,
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    traits: Traits,
    addresses: BTreeSet<String>,
}

/// Interfaces by id, each address on one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    interfaces: BTreeMap<String, Interface>,
    places: BTreeMap<String, String>,
}

/// One call that adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Addition {
    Eni { id: String, traits: Traits },
    Address { id: String, ip: String },
}

/// What is to go, where no pod uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Removal {
    /// The interface left.
    Eni(String),
    /// The interface has other traits now: it comes back with them.
    Replaced(String),
    /// The address left its interface.
    Address { id: String, ip: String },
}

impl Inventory {
    /// What the list has, without the interfaces `given_up`. Of an id or address that stands there twice the first counts,
    /// in the order in which the guest is told.
    pub(super) fn wanted(enis: &Enis, given_up: &BTreeSet<String>) -> Self {
        let mut sorted: Vec<_> = enis.enis.iter().filter(|eni| !given_up.contains(&eni.id)).collect();
        sorted.sort_by(|a, b| (a.device_number, &a.id).cmp(&(b.device_number, &b.id)));
        let mut wanted = Self::default();
        for eni in sorted {
            if wanted.has_eni(&eni.id) {
                tracing::warn!(eni = eni.id, "the interface is in the list twice; the first one counts");
                continue;
            }
            let traits = Traits {
                device_number: eni.device_number,
                is_primary: eni.is_primary,
                is_trunk: eni.is_trunk,
            };
            wanted.add_eni(&eni.id, traits);
            for ip in &eni.addresses {
                if !wanted.add_address(&eni.id, ip) {
                    tracing::warn!(
                        eni = eni.id,
                        address = ip,
                        "the address is in the list twice; the first one counts"
                    );
                }
            }
        }
        wanted
    }

    /// What the guest says that it has.
    pub(super) fn of_guest(infos: &EniInfos) -> Self {
        let mut has = Self::default();
        for eni in &infos.enis {
            let traits = Traits {
                device_number: eni.device_number,
                is_primary: eni.is_primary,
                is_trunk: eni.is_trunk,
            };
            has.add_eni(&eni.id, traits);
            for info in &eni.addresses {
                has.add_address(&eni.id, &info.address);
            }
        }
        has
    }

    pub(super) fn has_eni(&self, id: &str) -> bool {
        self.interfaces.contains_key(id)
    }

    pub(super) fn add_eni(&mut self, id: &str, traits: Traits) {
        let addresses = BTreeSet::new();
        self.interfaces.insert(id.to_owned(), Interface { traits, addresses });
    }

    /// False where the address has a place already, or the interface is not there.
    pub(super) fn add_address(&mut self, id: &str, ip: &str) -> bool {
        let Some(interface) = self.interfaces.get_mut(id) else {
            return false;
        };
        if self.places.contains_key(ip) {
            return false;
        }
        self.places.insert(ip.to_owned(), id.to_owned());
        interface.addresses.insert(ip.to_owned())
    }

    pub(super) fn remove_eni(&mut self, id: &str) {
        let removed = self.interfaces.remove(id);
        for ip in removed.into_iter().flat_map(|interface| interface.addresses) {
            self.places.remove(&ip);
        }
    }

    pub(super) fn remove_address(&mut self, ip: &str) {
        if let Some(id) = self.places.remove(ip)
            && let Some(interface) = self.interfaces.get_mut(&id)
        {
            interface.addresses.remove(ip);
        }
    }

    /// The interface that has the address.
    pub(super) fn place(&self, ip: &str) -> Option<&str> {
        self.places.get(ip).map(String::as_str)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.interfaces.keys().map(String::as_str)
    }

    pub(super) fn addresses(&self, id: &str) -> Vec<String> {
        let interface = self.interfaces.get(id);
        interface
            .map(|interface| by_number(&interface.addresses))
            .unwrap_or_default()
    }

    pub(super) fn traits(&self, id: &str) -> Option<Traits> {
        self.interfaces.get(id).map(|interface| interface.traits)
    }

    pub(super) fn eni_count(&self) -> usize {
        self.interfaces.len()
    }

    pub(super) fn address_count(&self) -> usize {
        self.places.len()
    }

    /// What is to be added, interfaces by device number then id, addresses by number. An address that is still on another
    /// interface waits until it is gone there.
    pub(super) fn additions_to(&self, wanted: &Self) -> Vec<Addition> {
        let mut sorted: Vec<_> = wanted.interfaces.iter().collect();
        sorted.sort_by_key(|(id, interface)| (interface.traits.device_number, *id));
        let mut additions = Vec::new();
        for (id, interface) in sorted {
            if !self.has_eni(id) {
                let (id, traits) = (id.clone(), interface.traits);
                additions.push(Addition::Eni { id, traits });
            }
            let missing = by_number(&interface.addresses)
                .into_iter()
                .filter(|ip| self.place(ip).is_none());
            additions.extend(missing.map(|ip| Addition::Address { id: id.clone(), ip }));
        }
        additions
    }

    /// What is to go, by id.
    pub(super) fn removals_to(&self, wanted: &Self) -> Vec<Removal> {
        self.ids().flat_map(|id| self.removals_of(id, wanted)).collect()
    }

    /// What is to go of one interface.
    pub(super) fn removals_of(&self, id: &str, wanted: &Self) -> Vec<Removal> {
        let Some(has) = self.interfaces.get(id) else {
            return Vec::new();
        };
        let Some(should) = wanted.interfaces.get(id) else {
            return vec![Removal::Eni(id.to_owned())];
        };
        let replaced = (has.traits != should.traits).then(|| Removal::Replaced(id.to_owned()));
        let left = by_number(&has.addresses)
            .into_iter()
            .filter(|ip| !should.addresses.contains(ip));
        let left = left.map(|ip| Removal::Address { id: id.to_owned(), ip });
        replaced.into_iter().chain(left).collect()
    }

    /// This, and what `other` has beyond it.
    pub(super) fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (id, interface) in &other.interfaces {
            if !both.has_eni(id) {
                both.add_eni(id, interface.traits);
            }
            for ip in &interface.addresses {
                both.add_address(id, ip);
            }
        }
        both
    }
}

/// As the guest orders them; what is no address comes last, for the guest to refuse.
fn by_number(addresses: &BTreeSet<String>) -> Vec<String> {
    let mut sorted: Vec<String> = addresses.iter().cloned().collect();
    sorted.sort_by_cached_key(|ip| {
        let number = ip.parse::<Ipv4Addr>().map(u32::from);
        (number.is_err(), number.unwrap_or(0))
    });
    sorted
}

#[cfg(test)]
mod tests {
    use super::super::Eni;
    use super::*;

    fn enis(list: &[(&str, i32, &[&str])]) -> Enis {
        let eni = |&(id, device_number, addresses): &(&str, i32, &[&str])| Eni {
            id: id.to_owned(),
            device_number,
            is_primary: false,
            is_trunk: false,
            addresses: addresses.iter().map(|ip| (*ip).to_owned()).collect(),
        };
        Enis {
            enis: list.iter().map(eni).collect(),
        }
    }

    fn wanted(list: &[(&str, i32, &[&str])]) -> Inventory {
        Inventory::wanted(&enis(list), &BTreeSet::new())
    }

    fn told(additions: &[Addition]) -> Vec<String> {
        let tell = |addition: &Addition| match addition {
            Addition::Eni { id, traits } => format!("{id}@{}", traits.device_number),
            Addition::Address { id, ip } => format!("{id}:{ip}"),
        };
        additions.iter().map(tell).collect()
    }

    #[test]
    fn interfaces_come_by_device_number_then_id_and_addresses_by_number() {
        let should = wanted(&[
            ("b", 1, &["10.0.0.10", "10.0.0.9", "nonsense"]),
            ("a", 1, &[]),
            ("z", -1, &["9.255.0.1"]),
        ]);
        assert_eq!(
            told(&Inventory::default().additions_to(&should)),
            [
                "z@-1",
                "z:9.255.0.1",
                "a@1",
                "b@1",
                "b:10.0.0.9",
                "b:10.0.0.10",
                "b:nonsense"
            ]
        );
        assert_eq!(should.additions_to(&should), []);
        assert_eq!(should.removals_to(&should), []);
    }

    #[test]
    fn what_left_goes_and_what_stays_is_not_touched() {
        let has = wanted(&[("a", 0, &["10.0.0.1", "10.0.0.2"]), ("b", 1, &["10.0.1.1"])]);
        let should = wanted(&[("a", 0, &["10.0.0.2", "10.0.0.3"])]);
        assert_eq!(
            has.removals_to(&should),
            [
                Removal::Address {
                    id: "a".to_owned(),
                    ip: "10.0.0.1".to_owned()
                },
                Removal::Eni("b".to_owned())
            ]
        );
        assert_eq!(told(&has.additions_to(&should)), ["a:10.0.0.3"]);
    }

    #[test]
    fn an_address_that_moves_waits_until_it_has_left() {
        let mut has = wanted(&[("a", 0, &["10.0.0.1"]), ("b", 1, &[])]);
        let should = wanted(&[("a", 0, &[]), ("b", 1, &["10.0.0.1"])]);
        assert_eq!(has.additions_to(&should), []);
        has.remove_address("10.0.0.1");
        assert_eq!(told(&has.additions_to(&should)), ["b:10.0.0.1"]);
    }

    #[test]
    fn other_traits_under_the_same_id_replace_the_interface() {
        let has = wanted(&[("a", 0, &["10.0.0.1"])]);
        let should = wanted(&[("a", 2, &["10.0.0.1"])]);
        assert_eq!(has.removals_to(&should), [Removal::Replaced("a".to_owned())]);
        assert_eq!(has.additions_to(&should), [], "while a pod uses it nothing changes");
    }

    #[test]
    fn what_was_given_up_or_stands_there_twice_is_not_wanted() {
        let list = enis(&[
            ("a", 0, &["10.0.0.1"]),
            ("b", 1, &["10.0.0.1", "10.0.0.2"]),
            ("a", 5, &["10.0.0.9"]),
        ]);
        let both = Inventory::wanted(&list, &BTreeSet::new());
        assert_eq!(
            told(&Inventory::default().additions_to(&both)),
            ["a@0", "a:10.0.0.1", "b@1", "b:10.0.0.2"]
        );
        let without_a = Inventory::wanted(&list, &BTreeSet::from(["a".to_owned()]));
        assert_eq!(
            told(&Inventory::default().additions_to(&without_a)),
            ["b@1", "b:10.0.0.1", "b:10.0.0.2"]
        );
    }

    #[test]
    fn an_instance_built_anew_gets_what_pods_may_still_use() {
        let should = wanted(&[("a", 0, &["10.0.0.1"])]);
        let had = wanted(&[("a", 3, &["10.0.0.2"]), ("b", 1, &["10.0.1.1"])]);
        let all = should.with(&had);
        assert_eq!(
            told(&Inventory::default().additions_to(&all)),
            ["a@0", "a:10.0.0.1", "a:10.0.0.2", "b@1", "b:10.0.1.1"]
        );
        assert_eq!((all.eni_count(), all.address_count()), (2, 3));
        assert_eq!(all.place("10.0.1.1"), Some("b"));
    }

    #[test]
    fn an_interface_that_goes_takes_its_addresses_along() {
        let mut has = wanted(&[("a", 0, &["10.0.0.2", "10.0.0.10"])]);
        assert_eq!(has.addresses("a"), ["10.0.0.2", "10.0.0.10"]);
        has.remove_eni("a");
        assert_eq!(has, Inventory::default());
        assert!(!has.add_address("a", "10.0.0.2"));
    }
}
