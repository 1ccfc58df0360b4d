//! The three exported functions over any [`World`]: check the input, ask, decide, answer.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::Level;
use trueup_guest::address::Address;

use crate::bindings::exports::trueup::lbaas::reconciliation::{AddressPorts, Desired, Error, Plan, Report};
use crate::bindings::trueup::lbaas::types::{Spec, State};
use crate::desired::DesiredState;
use crate::metrics::{self, Tally};
use crate::own::{self, Found, Own};
use crate::settings::Settings;
use crate::world::World;
use crate::{input, order, outcome, plan, reconcile as rounds};

/// `reconciliation.reconcile-check`
///
/// # Errors
/// As the contract states; bad input before any question.
pub fn reconcile_check(world: &mut impl World, settings: &Settings, desired: &Desired) -> Result<Plan, Error> {
    listed(world, "reconcile-check", desired, |desired, owned| {
        plan::of_all(settings, desired, owned)
    })
}

/// `reconciliation.reconcile`
///
/// # Errors
/// As the contract states; bad input before any question.
pub fn reconcile(world: &mut impl World, settings: &Settings, desired: &Desired) -> Result<Report, Error> {
    logged(world, "reconcile", desired, |world, desired| {
        rounds::reconcile(world, settings, desired)
    })
}

/// `reconciliation.status`
///
/// # Errors
/// As the contract states; bad input before any question.
pub fn status(world: &mut impl World, desired: &Desired) -> Result<Vec<AddressPorts>, Error> {
    listed(world, "status", desired, |_, owned| Ok(in_service(owned)))
}

/// The part that all calls share: checks the input, then looks at each load balancer, and logs the error, if any.
fn logged<W: World, T>(
    world: &mut W,
    call: &str,
    desired: &Desired,
    decide: impl FnOnce(&mut W, &DesiredState<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let answer = input::parse(desired).map_err(Error::InvalidInput).and_then(|desired| {
        // Only whether they can be read: their state does not matter.
        let mut load_balancers = desired.load_balancers.iter();
        let looks = load_balancers.try_for_each(|identifier| world.load_balancer(identifier).map(drop));
        looks.map_err(Error::Api)?;
        decide(world, &desired)
    });
    if let Err(error) = &answer {
        let error = outcome::words(error);
        let fields = [("call", call), ("service_uid", &desired.service_uid), ("error", &error)];
        world.log(Level::Error, "the call ends with an error", &fields);
    }
    answer
}

/// A call that decides from one list.
fn listed<W: World, T>(
    world: &mut W,
    call: &str,
    desired: &Desired,
    decide: impl FnOnce(&DesiredState<'_>, &[Own<'_>]) -> Result<T, Error>,
) -> Result<T, Error> {
    logged(world, call, desired, |world, desired| {
        let listed = world.list_tagged(&desired.tag).map_err(Error::Api)?;
        let owned = own::split(&desired.load_balancers, &listed);
        let retrieved = owned.iter().flatten().map(|found| order::kind(&found.object.spec));
        Tally::of(retrieved).send(world, metrics::RETRIEVED);
        decide(desired, &owned)
    })
}

/// The pairs that are in service on every load balancer: addresses ascending, each with its ports ascending. Uses the
/// binds that exist, whatever the desired state now. A bind counts if it is deployed, and while it is reset.
pub fn in_service(owned: &[Own<'_>]) -> Vec<AddressPorts> {
    let pairs = owned.iter().map(pairs);
    let common = pairs.reduce(|common, pairs| common.intersection(&pairs).copied().collect());
    let mut ports_by_address: BTreeMap<Address, Vec<u16>> = BTreeMap::new();
    for (address, port) in common.unwrap_or_default() {
        ports_by_address.entry(address).or_default().push(port);
    }
    ports_by_address
        .into_iter()
        .map(|(address, ports)| AddressPorts {
            address: address.to_string(),
            ports,
        })
        .collect()
}

fn pairs(own: &Own<'_>) -> BTreeSet<(Address, u16)> {
    let in_service = own
        .iter()
        .filter(|found| matches!(found.object.state, State::Ok | State::Updating));
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
