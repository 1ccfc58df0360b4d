//! Redirections of endpoint addresses: which pods ask for one, and which of them counts.

use std::collections::BTreeMap;

use trueup_guest::address::Address;

use crate::id::Id;

/// The target of each requesting pod, by the redirected address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redirects(BTreeMap<Address, BTreeMap<Id, Address>>);

impl Redirects {
    /// The effective address: the target of the first pod by id, else the address itself.
    pub(crate) fn target(&self, address: Address) -> Address {
        let asked = self.0.get(&address).and_then(|by_pod| by_pod.first_key_value());
        asked.map_or(address, |(_, target)| *target)
    }

    /// A pod asks for a redirection. True if that changes the target.
    pub(crate) fn add(&mut self, from: Address, pod: &Id, target: Address) -> bool {
        self.changes(from, |by_pod| {
            by_pod.insert(pod.clone(), target);
        })
    }

    /// A pod no longer asks for it. True if that changes the target.
    pub(crate) fn remove(&mut self, from: Address, pod: &Id) -> bool {
        self.changes(from, |by_pod| {
            by_pod.remove(pod);
        })
    }

    fn changes(&mut self, from: Address, change: impl FnOnce(&mut BTreeMap<Id, Address>)) -> bool {
        let before = self.target(from);
        let by_pod = self.0.entry(from).or_default();
        change(by_pod);
        if by_pod.is_empty() {
            self.0.remove(&from);
        }
        self.target(from) != before
    }
}
