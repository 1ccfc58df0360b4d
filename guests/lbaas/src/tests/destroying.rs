//! What the guest retries, and when it gives up.

use trueup_guest::Level;

use super::*;
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::simulated::{TAG, bind, built, small};

/// Nothing desired.
fn gone() -> Desired {
    let mut desired = small();
    desired.external_addresses.clear();
    desired.ports.clear();
    desired.servers.clear();
    desired
}

/// The desired state without the server.
fn without_servers() -> Desired {
    let mut desired = small();
    desired.servers.clear();
    desired
}

#[test]
fn a_failed_destruction_is_tried_again_as_long_as_another_succeeds() {
    let mut world = Simulation::of(built());
    world.fault(
        "destroy",
        Some("s-1"),
        ApiError::Refused((500, "try later".to_owned())),
        Some(1),
    );
    assert_eq!(reconcile(&mut world, &DESTROY, &gone()), done(0, 4, 2));
    let expected = [
        "load-balancer lb-1",
        "list-tagged anxccm-svc-uid=u1",
        "destroy s-1",
        "destroy n-1",
        "destroy f-1",
        "destroy b-1",
        "destroy s-1",
        "destroy b-1",
        "list-tagged anxccm-svc-uid=u1",
    ];
    assert_eq!(world.transcript(), expected);
    nothing_to_do(&mut world, &DESTROY, &gone());
}

#[test]
fn when_a_pass_destroys_nothing_what_is_left_is_not_destroyable() {
    let mut world = Simulation::of(built());
    world.add(bind("n-9", "mine", "f-1", "192.0.2.99", 80), &[]);
    let left = refs([(Kind::Backend, "b-1"), (Kind::Frontend, "f-1")]);
    assert_eq!(
        reconcile(&mut world, &DESTROY, &gone()),
        Err(Error::NotDestroyable(left))
    );
    assert_eq!(world.identifiers(), ["b-1", "f-1", "n-9"]);
    world
        .record
        .expect_metric("trueup_lbaas_deleted_total{kind=\"server\"}", 1.0);
    world
        .record
        .expect_metric("trueup_lbaas_delete_retries_total{kind=\"frontend\"}", 2.0);
    world
        .record
        .expect_metric("trueup_lbaas_delete_errors_total{kind=\"backend\"}", 1.0);
    let pending = &world.record.gauges["trueup_lbaas_resources_pending{operation=\"destroy\"}"];
    assert_eq!(pending, &[4.0, 3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0]);
    let warned: Vec<_> = world
        .record
        .lines
        .iter()
        .filter(|(level, _)| *level == Level::Warn)
        .map(|(_, line)| line)
        .collect();
    let expected = [
        "not destroyed kind=frontend identifier=f-1 error=refused with status 409: in use",
        "not destroyed kind=backend identifier=b-1 error=refused with status 409: in use",
    ];
    assert_eq!(warned, expected.each_ref());
}

#[test]
fn a_rate_limit_ends_the_call_at_once_even_after_a_success() {
    let mut world = Simulation::of(built());
    world.fault("destroy", Some("n-1"), ApiError::RateLimited(Some(1500)), Some(1));
    assert_eq!(
        reconcile(&mut world, &DESTROY, &gone()),
        Err(Error::Api(ApiError::RateLimited(Some(1500))))
    );
    assert_eq!(world.transcript()[2..], ["destroy s-1", "destroy n-1"]);
    world
        .record
        .expect_metric("trueup_lbaas_deleted_total{kind=\"server\"}", 1.0);
    assert_eq!(reconcile(&mut world, &DESTROY, &gone()), done(0, 3, 2));
}

#[test]
fn not_found_is_destroyed_and_still_listed_is_tried_again_after_a_pause() {
    let mut world = Simulation::of(built());
    world.fault("destroy", Some("s-1"), ApiError::NotFound, Some(2));
    assert_eq!(reconcile(&mut world, &DESTROY, &without_servers()), done(0, 1, 4));
    assert_eq!(world.sleeps, [1000, 1500]);
    world
        .record
        .expect_metric("trueup_lbaas_deleted_total{kind=\"server\"}", 1.0);
    assert_eq!(world.identifiers(), ["b-1", "f-1", "n-1"]);
}

/// A call in which the server `s-1` stays listed however often it is destroyed; it ends with this error about it.
fn in_vain(settings: &Settings, backoff_steps: u32, error: fn(Vec<ObjectRef>) -> Error) -> Simulation {
    let mut world = Simulation::of(built());
    world.fault("destroy", None, ApiError::NotFound, None);
    let desired = Desired {
        backoff_steps,
        ..without_servers()
    };
    let left = refs([(Kind::Server, "s-1")]);
    assert_eq!(reconcile(&mut world, settings, &desired), Err(error(left)));
    world
}

#[test]
fn what_stays_listed_for_as_many_looks_is_not_destroyable() {
    let mut world = in_vain(&DESTROY, 3, Error::NotDestroyable);
    let list = format!("list-tagged {TAG}");
    let expected = [
        "load-balancer lb-1",
        &list,
        "destroy s-1",
        &list,
        "destroy s-1",
        &list,
        "destroy s-1",
        &list,
    ];
    assert_eq!(world.transcript(), expected);
    assert_eq!(world.sleeps, [1000, 1500]);
    world
        .record
        .expect_metric("trueup_lbaas_delete_errors_total{kind=\"server\"}", 1.0);
}

#[test]
fn with_one_look_nothing_is_tried_again() {
    let world = in_vain(&DESTROY, 1, Error::NotDestroyable);
    assert_eq!(world.sleeps, [0; 0]);
}

#[test]
fn rounds_that_only_destroy_in_vain_end_with_what_they_destroyed() {
    let settings = Settings {
        max_rounds: 2,
        ..DESTROY
    };
    in_vain(&settings, without_servers().backoff_steps, Error::TimedOut);
}
