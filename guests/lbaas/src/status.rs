//! Which addresses and ports are in service on every load balancer.
//!
//! Uses the binds that exist, whatever the desired state now. A bind counts if it is deployed, and while it is reset.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::address::Address;

use crate::bindings::exports::trueup::lbaas::reconciliation::AddressPorts;
use crate::bindings::trueup::lbaas::types::{Spec, State};
use crate::own::{Found, Own};

/// The pairs that all load balancers have: addresses ascending, each with its ports ascending.
pub fn in_service(owned: &[Own<'_>]) -> Vec<AddressPorts> {
    let pairs = owned.iter().map(pairs);
    let common = pairs.reduce(|common, pairs| common.intersection(&pairs).copied().collect());
    let mut ports_by_address: BTreeMap<Address, Vec<u16>> = BTreeMap::new();
    for (address, port) in common.unwrap_or_default() {
        ports_by_address.entry(address).or_default().push(port);
    }
    (ports_by_address.into_iter())
        .map(|(address, ports)| AddressPorts {
            address: address.to_string(),
            ports,
        })
        .collect()
}

fn pairs(own: &Own<'_>) -> BTreeSet<(Address, u16)> {
    let in_service = (own.iter()).filter(|found| matches!(found.object.state, State::Ok | State::Updating));
    let pair = |found: &Found<'_>| match &found.object.spec {
        Spec::Bind(bind) => Some((Address::parse(&bind.address)?, bind.port)),
        _ => None,
    };
    in_service.filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::trueup::lbaas::types::Object;
    use crate::own::split;
    use crate::simulated::{bind, frontend};

    fn answer(load_balancers: &[&str], listed: &[Object]) -> Vec<(String, Vec<u16>)> {
        let answer = in_service(&split(load_balancers, listed));
        answer.into_iter().map(|entry| (entry.address, entry.ports)).collect()
    }

    #[test]
    fn only_what_is_in_service_on_every_load_balancer() {
        let in_state = |state, object| Object { state, ..object };
        let listed = [
            frontend("f-1", "a", "lb-1", "b"),
            frontend("f-2", "a", "lb-2", "b"),
            bind("n-1", "a", "f-1", "192.0.2.10", 443),
            bind("n-2", "a", "f-1", "192.0.2.10", 80),
            in_state(State::Updating, bind("n-3", "a", "f-1", "192.0.2.10", 53)),
            bind("n-4", "a", "f-1", "192.0.2.9", 80),
            bind("n-5", "a", "f-1", "2001:db8:0::10", 80),
            in_state(State::Failed, bind("n-6", "a", "f-1", "2001:db8::10", 81)),
            bind("n-7", "a", "f-1", "", 80),
            bind("n-8", "a", "f-1", "192.0.2.9", 80),
            in_state(State::Pending, bind("m-1", "a", "f-2", "192.0.2.10", 443)),
            bind("m-2", "a", "f-2", "::ffff:192.0.2.10", 80),
            bind("m-3", "a", "f-2", "192.0.2.10", 53),
            bind("m-5", "a", "f-2", "2001:db8::0010", 80),
            bind("m-6", "a", "f-2", "2001:db8::10", 81),
        ];
        let both = [
            ("192.0.2.10".to_owned(), vec![53, 80]),
            ("2001:db8::10".to_owned(), vec![80]),
        ];
        assert_eq!(answer(&["lb-2", "lb-1"], &listed), both);
        let first = [
            ("192.0.2.9".to_owned(), vec![80]),
            ("192.0.2.10".to_owned(), vec![53, 80, 443]),
            ("2001:db8::10".to_owned(), vec![80]),
        ];
        assert_eq!(answer(&["lb-1"], &listed), first);
        assert_eq!(answer(&["lb-3"], &listed), []);
    }
}
