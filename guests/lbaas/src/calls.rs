//! The three exported functions over any [`World`]: check the input, ask, decide, answer.

use trueup_guest::Level;

use crate::bindings::exports::trueup::lbaas::reconciliation::{AddressPorts, Desired, Error, Plan, Report};
use crate::desired::DesiredState;
use crate::metrics::{self, Tally};
use crate::own::{self, Own};
use crate::settings::Settings;
use crate::world::World;
use crate::{input, order, outcome, plan, reconcile as rounds, status as service};

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
    listed(world, "status", desired, |_, owned| Ok(service::in_service(owned)))
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
