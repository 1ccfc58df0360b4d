//! Whole calls against a simulated API.

mod creating;
mod destroying;
mod planning;
mod properties;
mod several;
mod states;

use crate::bindings::exports::trueup::lbaas::reconciliation::{Desired, Error, Plan, Report};
use crate::bindings::trueup::lbaas::types::{Kind, Object, ObjectRef};
use crate::own::split;
use crate::settings::Settings;
use crate::simulated::Simulation;
use crate::{calls, input, plan};

/// Failed objects are destroyed, whatever this build's default is; no jitter.
const DESTROY: Settings = Settings {
    resets_failed: false,
    backoff_jitter_percent: 0,
    ..DEFAULT
};
/// What version 1 does without settings.
pub(crate) const DEFAULT: Settings = Settings {
    resets_failed: false,
    backoff_initial_ms: 1000,
    backoff_factor_percent: 150,
    backoff_max_ms: 300_000,
    backoff_jitter_percent: 150,
    max_rounds: 20,
};
/// Failed objects are reset.
const RESET: Settings = Settings {
    resets_failed: true,
    ..DESTROY
};

fn reconcile(world: &mut Simulation, settings: &Settings, desired: &Desired) -> Result<Report, Error> {
    calls::reconcile(world, settings, desired)
}

/// The plan from what the API lists.
fn check(settings: &Settings, desired: &Desired, listed: Vec<Object>) -> Result<Plan, Error> {
    let desired = input::parse(desired).map_err(Error::InvalidInput)?;
    plan::of_all(settings, &desired, &split(&desired.load_balancers, &listed))
}

fn done(created: u32, destroyed: u32, rounds: u32) -> Result<Report, Error> {
    Ok(Report {
        created,
        destroyed,
        rounds,
    })
}

fn refs<const N: usize>(refs: [(Kind, &str); N]) -> Vec<ObjectRef> {
    refs.map(|(kind, identifier)| ObjectRef {
        kind,
        identifier: identifier.to_owned(),
    })
    .to_vec()
}

fn identifiers(objects: &[Object]) -> Vec<&str> {
    objects.iter().map(|object| object.identifier.as_str()).collect()
}

/// The names to create and the identifiers to destroy, in order.
fn outline(plan: &Plan) -> (Vec<&str>, Vec<&str>) {
    (
        plan.create.iter().map(crate::order::name).collect(),
        identifiers(&plan.destroy),
    )
}

/// Checks that the existing resources are in the desired state.
fn nothing_to_do(world: &mut Simulation, settings: &Settings, desired: &Desired) {
    let before = world.all();
    world.calls.clear();
    assert_eq!(reconcile(world, settings, desired), done(0, 0, 1));
    let asked: Vec<_> = world
        .calls
        .iter()
        .map(|call| call.split(' ').next().unwrap_or_default())
        .collect();
    assert!(
        asked.iter().all(|call| ["load-balancer", "list-tagged"].contains(call)),
        "{asked:?}"
    );
    assert_eq!(world.all(), before);
}
