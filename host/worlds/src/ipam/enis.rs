//! Computes the calls that give the guest its desired interfaces.
//!
//! Pure: compares the desired state with what the guest has. Repeats next time what can't be done now, such as
//! removing an address that a pod uses. Only the guest knows what pods use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use trueup_sources::enis::{Eni, Enis};

use crate::ipam::guest::{self, AddAddress, AddEni};

/// Interfaces by id, each address on one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    /// What does not change about an interface while the guest has it.
    pub(super) enis: BTreeMap<String, AddEni>,
    /// The interface of each address.
    pub(super) addresses: BTreeMap<String, String>,
}

/// One call that adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Addition {
    Eni(AddEni),
    Address(AddAddress),
}

/// What to remove if no pod uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Removal {
    /// The interface left the list, or has other traits now. It is then added again with them.
    Eni(String),
    /// The address left its interface.
    Address { id: String, ip: String },
}

impl Inventory {
    /// The contents of the list, without the interfaces `given_up`. If an id or address occurs twice, the first one
    /// counts, in the order of the guest's calls.
    pub(super) fn wanted(enis: &Enis, given_up: &BTreeSet<String>) -> Self {
        let mut sorted: Vec<_> = enis.enis.iter().filter(|eni| !given_up.contains(&eni.id)).collect();
        sorted.sort_by(|a, b| (a.device_number, &a.id).cmp(&(b.device_number, &b.id)));
        let mut wanted = Self::default();
        for eni in sorted {
            if wanted.enis.contains_key(&eni.id) {
                continue;
            }
            wanted.add_eni(&eni.id, eni.device_number, eni.is_primary, eni.is_trunk);
            for ip in &eni.addresses {
                wanted.add_address(&eni.id, ip);
            }
        }
        wanted
    }

    /// The same as a list, by id.
    pub(super) fn list(&self) -> Enis {
        let eni = |eni: &AddEni| Eni {
            id: eni.eni_id.clone(),
            device_number: eni.device_number,
            is_primary: eni.is_primary,
            is_trunk: eni.is_trunk,
            addresses: self.addresses(&eni.eni_id),
        };
        Enis {
            enis: self.enis.values().map(eni).collect(),
        }
    }

    /// What the guest reports that it has.
    pub(super) fn of_guest(enis: &[guest::Eni]) -> Self {
        let mut has = Self::default();
        for eni in enis {
            has.add_eni(&eni.id, eni.device_number, eni.is_primary, eni.is_trunk);
            for info in &eni.addresses {
                has.add_address(&eni.id, &info.address);
            }
        }
        has
    }

    /// Adds an interface, or replaces its traits.
    pub(super) fn add_eni(&mut self, id: &str, device_number: i32, is_primary: bool, is_trunk: bool) {
        let eni = AddEni {
            eni_id: id.to_owned(),
            device_number,
            is_primary,
            is_trunk,
        };
        self.enis.insert(id.to_owned(), eni);
    }

    /// Changes nothing if the address is on an interface already.
    pub(super) fn add_address(&mut self, id: &str, ip: &str) {
        let addresses = &mut self.addresses;
        addresses.entry(ip.to_owned()).or_insert_with(|| id.to_owned());
    }

    pub(super) fn remove_eni(&mut self, id: &str) {
        self.enis.remove(id);
        self.addresses.retain(|_, of| of != id);
    }

    /// Whether the addition would change nothing.
    pub(super) fn contains(&self, addition: &Addition) -> bool {
        match addition {
            Addition::Eni(eni) => self.enis.get(&eni.eni_id) == Some(eni),
            Addition::Address(address) => self.interface_of(&address.ipv4) == Some(&address.eni_id),
        }
    }

    /// Adds this. Replaces other traits, and moves an address. Removes nothing else.
    pub(super) fn put(&mut self, addition: &Addition) {
        match addition {
            Addition::Eni(eni) => _ = self.enis.insert(eni.eni_id.clone(), eni.clone()),
            Addition::Address(at) => _ = self.addresses.insert(at.ipv4.clone(), at.eni_id.clone()),
        }
    }

    /// The interface that has the address.
    pub(super) fn interface_of(&self, ip: &str) -> Option<&str> {
        self.addresses.get(ip).map(String::as_str)
    }

    /// The addresses of an interface, by number.
    pub(super) fn addresses(&self, id: &str) -> Vec<String> {
        let of_it = self.addresses.iter().filter(|(_, of)| *of == id);
        by_number(of_it.map(|(ip, _)| ip))
    }

    /// What to add: interfaces by device number then id, addresses by number. An address that is still on another
    /// interface waits until it is removed there. Addresses of an interface with other traits wait until that is
    /// replaced.
    pub(super) fn additions_to(&self, wanted: &Self) -> Vec<Addition> {
        let mut sorted: Vec<_> = wanted.enis.values().collect();
        sorted.sort_by_key(|eni| (eni.device_number, &eni.eni_id));
        let mut missing: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        let is_missing = |(ip, _): &(&String, _)| !self.addresses.contains_key(*ip);
        for (ip, id) in wanted.addresses.iter().filter(is_missing) {
            missing.entry(id).or_default().push(ip);
        }
        let mut additions = Vec::new();
        for eni in sorted {
            match self.enis.get(&eni.eni_id) {
                None => additions.push(Addition::Eni(eni.clone())),
                Some(has) if has != eni => continue,
                Some(_) => {}
            }
            let missing = missing.remove(eni.eni_id.as_str()).unwrap_or_default();
            additions.extend(by_number(missing).into_iter().map(|ipv4| {
                let eni_id = eni.eni_id.clone();
                Addition::Address(AddAddress { eni_id, ipv4 })
            }));
        }
        additions
    }

    /// What to remove, by id.
    pub(super) fn removals_to(&self, wanted: &Self) -> Vec<Removal> {
        let mut removals = Vec::new();
        for (id, has) in &self.enis {
            let should = wanted.enis.get(id);
            if should != Some(has) {
                removals.push(Removal::Eni(id.clone()));
            }
            if should.is_none() {
                continue;
            }
            let mut left = self.addresses(id);
            left.retain(|ip| wanted.interface_of(ip) != Some(id));
            removals.extend(left.into_iter().map(|ip| Removal::Address { id: id.clone(), ip }));
        }
        removals
    }

    /// What may be removed now that no pod uses this address any more.
    pub(super) fn removal_after(&self, ip: &str, wanted: &Self) -> Option<Removal> {
        let id = self.interface_of(ip)?.to_owned();
        let should = wanted.enis.get(&id);
        if should.is_none_or(|should| self.enis.get(&id) != Some(should)) {
            return Some(Removal::Eni(id));
        }
        let ip = ip.to_owned();
        (wanted.interface_of(&ip) != Some(&id)).then_some(Removal::Address { id, ip })
    }

    /// A copy with what `other` has beyond it, but for the interfaces `given_up`.
    pub(super) fn with(&self, other: &Self, given_up: &BTreeSet<String>) -> Self {
        let mut both = other.clone();
        both.enis.retain(|id, _| !given_up.contains(id));
        both.addresses.retain(|_, of| !given_up.contains(of));
        both.enis.extend(self.enis.clone());
        both.addresses.extend(self.addresses.clone());
        both
    }
}

/// Sorts as the guest does. Invalid addresses come last, for the guest to refuse.
fn by_number<'a>(addresses: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut sorted: Vec<String> = addresses.into_iter().cloned().collect();
    sorted.sort_by_cached_key(|ip| {
        let number = ip.parse::<Ipv4Addr>().map(u32::from);
        (number.is_err(), number.unwrap_or(0))
    });
    sorted
}

#[cfg(test)]
mod tests {
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

    fn shown(additions: &[Addition]) -> Vec<String> {
        let show = |addition: &Addition| match addition {
            Addition::Eni(eni) => format!("{}@{}", eni.eni_id, eni.device_number),
            Addition::Address(address) => format!("{}:{}", address.eni_id, address.ipv4),
        };
        additions.iter().map(show).collect()
    }

    #[test]
    fn interfaces_come_by_device_number_then_id_and_addresses_by_number() {
        let should = wanted(&[
            ("b", 1, &["10.0.0.10", "10.0.0.9", "nonsense"]),
            ("a", 1, &[]),
            ("z", -1, &["9.255.0.1"]),
        ]);
        assert_eq!(
            shown(&Inventory::default().additions_to(&should)),
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
        assert_eq!(shown(&has.additions_to(&should)), ["a:10.0.0.3"]);
    }

    #[test]
    fn an_address_that_moves_waits_until_it_has_left() {
        let mut has = wanted(&[("a", 0, &["10.0.0.1"]), ("b", 1, &[])]);
        let should = wanted(&[("a", 0, &[]), ("b", 1, &["10.0.0.1"])]);
        assert_eq!(has.additions_to(&should), []);
        has.addresses.remove("10.0.0.1");
        assert_eq!(shown(&has.additions_to(&should)), ["b:10.0.0.1"]);
    }

    #[test]
    fn other_traits_under_the_same_id_replace_the_interface() {
        let has = wanted(&[("a", 0, &["10.0.0.1"])]);
        let should = wanted(&[("a", 2, &["10.0.0.1"])]);
        assert_eq!(has.removals_to(&should), [Removal::Eni("a".to_owned())]);
        assert_eq!(has.additions_to(&should), [], "while a pod uses it nothing changes");
        let grown = wanted(&[("a", 2, &["10.0.0.1", "10.0.0.2"])]);
        assert_eq!(has.additions_to(&grown), [], "new addresses would keep it for ever");
    }

    #[test]
    fn what_may_go_after_a_pod_is_known_from_its_address() {
        let has = wanted(&[
            ("a", 0, &["10.0.0.1", "10.0.0.2"]),
            ("b", 1, &["10.0.1.1"]),
            ("c", 2, &["10.0.2.1"]),
        ]);
        let should = wanted(&[("a", 0, &["10.0.0.1"]), ("c", 3, &["10.0.0.2", "10.0.2.1"])]);
        let after = |ip| has.removal_after(ip, &should);
        assert_eq!(after("10.0.0.1"), None, "listed");
        assert_eq!(
            after("10.0.0.2"),
            Some(Removal::Address {
                id: "a".to_owned(),
                ip: "10.0.0.2".to_owned()
            })
        );
        assert_eq!(after("10.0.1.1"), Some(Removal::Eni("b".to_owned())));
        assert_eq!(after("10.0.2.1"), Some(Removal::Eni("c".to_owned())));
        assert_eq!(after("10.9.9.9"), None, "on no interface");
    }

    #[test]
    fn an_inventory_reads_back_from_its_list() {
        let has = wanted(&[("b", 1, &["10.0.0.10", "10.0.0.9"]), ("a", -1, &[])]);
        assert_eq!(
            has.list(),
            enis(&[("a", -1, &[]), ("b", 1, &["10.0.0.9", "10.0.0.10"])])
        );
        assert_eq!(Inventory::wanted(&has.list(), &BTreeSet::new()), has);
        let given_up = BTreeSet::from(["b".to_owned(), "c".to_owned()]);
        assert_eq!(Inventory::default().with(&has, &given_up), wanted(&[("a", -1, &[])]));
    }

    #[test]
    fn what_was_given_up_or_is_listed_twice_is_not_wanted() {
        let list = enis(&[
            ("a", 0, &["10.0.0.1"]),
            ("b", 1, &["10.0.0.1", "10.0.0.2"]),
            ("a", 5, &["10.0.0.9"]),
        ]);
        let both = Inventory::wanted(&list, &BTreeSet::new());
        assert_eq!(
            shown(&Inventory::default().additions_to(&both)),
            ["a@0", "a:10.0.0.1", "b@1", "b:10.0.0.2"]
        );
        let without_a = Inventory::wanted(&list, &BTreeSet::from(["a".to_owned()]));
        assert_eq!(
            shown(&Inventory::default().additions_to(&without_a)),
            ["b@1", "b:10.0.0.1", "b:10.0.0.2"]
        );
    }

    #[test]
    fn an_instance_built_anew_gets_what_pods_may_still_use() {
        let should = wanted(&[("a", 0, &["10.0.0.1"])]);
        let had = wanted(&[("a", 3, &["10.0.0.2"]), ("b", 1, &["10.0.1.1"])]);
        let all = should.with(&had, &BTreeSet::new());
        assert_eq!(
            shown(&Inventory::default().additions_to(&all)),
            ["a@0", "a:10.0.0.1", "a:10.0.0.2", "b@1", "b:10.0.1.1"]
        );
        assert_eq!((all.enis.len(), all.addresses.len()), (2, 3));
        assert_eq!(all.interface_of("10.0.1.1"), Some("b"));
    }

    #[test]
    fn an_interface_that_goes_takes_its_addresses_along() {
        let mut has = wanted(&[("a", 0, &["10.0.0.2", "10.0.0.10"])]);
        assert_eq!(has.addresses("a"), ["10.0.0.2", "10.0.0.10"]);
        has.remove_eni("a");
        assert_eq!(has, Inventory::default());
    }
}
