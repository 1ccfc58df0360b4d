//! Computes the calls that give the guest its desired interfaces.
//!
//! Pure: compares the desired state with what the guest has. Repeats next time what can't be done now, such as
//! removing an address that a pod uses. Only the guest knows what pods use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use trueup_sources::enis::{Eni, Enis};

use crate::ipam::guest::EniInfos;

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
    interface_by_address: BTreeMap<String, String>,
}

/// One call that adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Addition {
    Eni { id: String, traits: Traits },
    Address { id: String, ip: String },
}

/// What to remove if no pod uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Removal {
    /// The interface left the list.
    Eni(String),
    /// The interface has other traits now. It is added again with them.
    Replaced(String),
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
            if wanted.has_eni(&eni.id) {
                continue;
            }
            let traits = Traits {
                device_number: eni.device_number,
                is_primary: eni.is_primary,
                is_trunk: eni.is_trunk,
            };
            wanted.add_eni(&eni.id, traits);
            for ip in &eni.addresses {
                wanted.add_address(&eni.id, ip);
            }
        }
        wanted
    }

    /// The same as a list, by id.
    pub(super) fn list(&self) -> Enis {
        let eni = |(id, interface): (&String, &Interface)| Eni {
            id: id.clone(),
            device_number: interface.traits.device_number,
            is_primary: interface.traits.is_primary,
            is_trunk: interface.traits.is_trunk,
            addresses: by_number(&interface.addresses),
        };
        Enis {
            enis: self.interfaces.iter().map(eni).collect(),
        }
    }

    /// What the guest reports that it has.
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

    /// `false` if the address is already on an interface, or the interface does not exist.
    pub(super) fn add_address(&mut self, id: &str, ip: &str) -> bool {
        let Some(interface) = self.interfaces.get_mut(id) else {
            return false;
        };
        if self.interface_by_address.contains_key(ip) {
            return false;
        }
        self.interface_by_address.insert(ip.to_owned(), id.to_owned());
        interface.addresses.insert(ip.to_owned())
    }

    pub(super) fn remove_eni(&mut self, id: &str) {
        let removed = self.interfaces.remove(id);
        for ip in removed.into_iter().flat_map(|interface| interface.addresses) {
            self.interface_by_address.remove(&ip);
        }
    }

    pub(super) fn remove_address(&mut self, ip: &str) {
        if let Some(id) = self.interface_by_address.remove(ip)
            && let Some(interface) = self.interfaces.get_mut(&id)
        {
            interface.addresses.remove(ip);
        }
    }

    /// Whether the addition would change nothing.
    pub(super) fn contains(&self, addition: &Addition) -> bool {
        match addition {
            Addition::Eni { id, traits } => self.traits(id) == Some(*traits),
            Addition::Address { id, ip } => self.interface_of(ip) == Some(id),
        }
    }

    /// Adds this. Replaces other traits, and moves an address. Removes nothing else.
    pub(super) fn put(&mut self, addition: &Addition) {
        match addition {
            Addition::Eni { id, traits } => match self.interfaces.get_mut(id) {
                Some(interface) => interface.traits = *traits,
                None => self.add_eni(id, *traits),
            },
            Addition::Address { id, ip } => {
                self.remove_address(ip);
                self.add_address(id, ip);
            }
        }
    }

    /// The interface that has the address.
    pub(super) fn interface_of(&self, ip: &str) -> Option<&str> {
        self.interface_by_address.get(ip).map(String::as_str)
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
        self.interface_by_address.len()
    }

    /// What to add: interfaces by device number then id, addresses by number. An address that is still on another
    /// interface waits until it is removed there. Addresses of an interface with other traits wait until that is
    /// replaced.
    pub(super) fn additions_to(&self, wanted: &Self) -> Vec<Addition> {
        let mut sorted: Vec<_> = wanted.interfaces.iter().collect();
        sorted.sort_by_key(|(id, interface)| (interface.traits.device_number, *id));
        let mut additions = Vec::new();
        for (id, interface) in sorted {
            if !self.has_eni(id) {
                let (id, traits) = (id.clone(), interface.traits);
                additions.push(Addition::Eni { id, traits });
            } else if self.traits(id) != Some(interface.traits) {
                continue;
            }
            let missing = interface.addresses.iter().filter(|ip| self.interface_of(ip).is_none());
            additions.extend(
                by_number(missing)
                    .into_iter()
                    .map(|ip| Addition::Address { id: id.clone(), ip }),
            );
        }
        additions
    }

    /// What to remove, by id.
    pub(super) fn removals_to(&self, wanted: &Self) -> Vec<Removal> {
        self.ids().flat_map(|id| self.removals_of(id, wanted)).collect()
    }

    /// What may be removed now that no pod uses this address any more.
    pub(super) fn removal_after(&self, ip: &str, wanted: &Self) -> Option<Removal> {
        let id = self.interface_of(ip)?.to_owned();
        let Some(should) = wanted.traits(&id) else {
            return Some(Removal::Eni(id));
        };
        if self.traits(&id) != Some(should) {
            return Some(Removal::Replaced(id));
        }
        let ip = ip.to_owned();
        (wanted.interface_of(&ip) != Some(&id)).then_some(Removal::Address { id, ip })
    }

    /// What to remove of one interface.
    fn removals_of(&self, id: &str, wanted: &Self) -> Vec<Removal> {
        let Some(has) = self.interfaces.get(id) else {
            return Vec::new();
        };
        let Some(should) = wanted.interfaces.get(id) else {
            return vec![Removal::Eni(id.to_owned())];
        };
        let replaced = (has.traits != should.traits).then(|| Removal::Replaced(id.to_owned()));
        let left = has.addresses.difference(&should.addresses);
        let left = by_number(left)
            .into_iter()
            .map(|ip| Removal::Address { id: id.to_owned(), ip });
        replaced.into_iter().chain(left).collect()
    }

    /// A copy without some interfaces.
    pub(super) fn without(&self, ids: &BTreeSet<String>) -> Self {
        let mut others = self.clone();
        for id in ids {
            others.remove_eni(id);
        }
        others
    }

    /// A copy with what `other` has beyond it.
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
            Addition::Eni { id, traits } => format!("{id}@{}", traits.device_number),
            Addition::Address { id, ip } => format!("{id}:{ip}"),
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
        has.remove_address("10.0.0.1");
        assert_eq!(shown(&has.additions_to(&should)), ["b:10.0.0.1"]);
    }

    #[test]
    fn other_traits_under_the_same_id_replace_the_interface() {
        let has = wanted(&[("a", 0, &["10.0.0.1"])]);
        let should = wanted(&[("a", 2, &["10.0.0.1"])]);
        assert_eq!(has.removals_to(&should), [Removal::Replaced("a".to_owned())]);
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
        assert_eq!(after("10.0.2.1"), Some(Removal::Replaced("c".to_owned())));
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
        assert_eq!(has.without(&given_up), wanted(&[("a", -1, &[])]));
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
        let all = should.with(&had);
        assert_eq!(
            shown(&Inventory::default().additions_to(&all)),
            ["a@0", "a:10.0.0.1", "a:10.0.0.2", "b@1", "b:10.0.1.1"]
        );
        assert_eq!((all.eni_count(), all.address_count()), (2, 3));
        assert_eq!(all.interface_of("10.0.1.1"), Some("b"));
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
