//! Errors of the API, failures of operations, and retries.

use super::{CONFIG, Error, advance, end, given, instance, sync};
use crate::bindings::trueup::neg::api::Error as ApiError;
use crate::neg::Neg;
use crate::simulated::Simulation;

fn unavailable() -> ApiError {
    ApiError::Unavailable("503".to_owned())
}

fn refused() -> ApiError {
    ApiError::Refused((409, "name in use".to_owned()))
}

/// Runs a sync with this error at this call, and returns the time until its retry.
fn retried_after(neg: &mut Neg, world: &mut Simulation, call: &'static str, error: ApiError) -> Option<u64> {
    world.fail(call, error.clone());
    assert_eq!(sync(neg, world, &[("z1", "")]), Err(Error::Api(error)));
    world.timers.values().next().map(|due_ms| due_ms - world.now_ms)
}

#[test]
fn retries_come_at_doubled_distances_until_a_sync_succeeds() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    for expected in [5000, 10_000, 20_000] {
        assert_eq!(
            retried_after(&mut neg, &mut world, "list", unavailable()),
            Some(expected)
        );
        // The error of a sync replaces the previous timer.
        assert_eq!(world.timers.len(), 1);
    }
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "")]), Ok((0, 0, 0, None)));
    assert!(world.timers.is_empty());
    assert_eq!(retried_after(&mut neg, &mut world, "list", unavailable()), Some(5000));
    assert_eq!(advance(&mut neg, &mut world, 5000), [(4, true)]);
    assert!(!neg.on_timer(&mut world, 4));
    world
        .record
        .expect_metric("trueup_neg_retries_total{cause=\"sync\"}", 4.0);
    world
        .record
        .expect_metric("trueup_neg_syncs_total{result=\"api-error\"}", 4.0);
}

#[test]
fn retries_end_after_so_many_and_a_rate_limit_is_not_counted() {
    let config = r#"{"neg_names": {"s1": "web-s1"}, "max_retries": 2, "max_retry_delay_ms": 8000}"#;
    let (mut neg, mut world) = (instance(config), Simulation::default());
    let limited = ApiError::RateLimited(Some(1_000_000));
    assert_eq!(
        retried_after(&mut neg, &mut world, "ensure", limited.clone()),
        Some(1_000_000)
    );
    assert_eq!(
        retried_after(&mut neg, &mut world, "ensure", ApiError::Unauthorized),
        Some(5000)
    );
    assert_eq!(
        retried_after(&mut neg, &mut world, "ensure", ApiError::RateLimited(None)),
        Some(8000)
    );
    assert_eq!(
        retried_after(&mut neg, &mut world, "ensure", ApiError::Unauthorized),
        None
    );
    assert_eq!(retried_after(&mut neg, &mut world, "ensure", limited), Some(1_000_000));
}

#[test]
fn a_neg_that_cannot_be_ensured_is_left_out_and_all_are_ensured_again() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    world.fail("ensure", refused());
    let target = [("z1", "10.0.0.1"), ("z2", "10.0.0.2")];
    assert_eq!(sync(&mut neg, &mut world, &target), Err(Error::Api(refused())));
    let asked = [
        "ensure z1 web-s1",
        "ensure z2 web-s1",
        "list z2 web-s1",
        "attach z2 web-s1 10.0.0.2",
    ];
    assert_eq!(world.take_asked(), asked);
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((1, 0, 0, None)));
    assert_eq!(world.take_asked()[..2], ["ensure z1 web-s1", "ensure z2 web-s1"]);
}

#[test]
fn where_all_are_left_out_the_sync_ends() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    sync(&mut neg, &mut world, &[("z9", "")]).unwrap();
    world.take_asked();
    world.fail("ensure", refused());
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "")]), Err(Error::Api(refused())));
    assert_eq!(world.take_asked(), ["ensure z1 web-s1"]);
    // Without a target there is none to leave out.
    assert_eq!(sync(&mut neg, &mut world, &[]), Ok((0, 0, 0, None)));
    assert_eq!(world.take_asked(), ["list z9 web-s1"]);
}

#[test]
fn any_other_error_of_ensure_ends_the_sync() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    world.fail("ensure", ApiError::AccessDenied("no".to_owned()));
    let denied = Err(Error::Api(ApiError::AccessDenied("no".to_owned())));
    assert_eq!(sync(&mut neg, &mut world, &[("z1", ""), ("z2", "")]), denied);
    assert_eq!(world.take_asked(), ["ensure z1 web-s1"]);
}

#[test]
fn a_refused_operation_stops_no_other_and_an_outage_stops_the_rest() {
    for (error, expected) in [
        (
            refused(),
            &[
                "attach z1 web-s1 10.0.0.1",
                "attach z2 web-s1 10.0.0.2",
                "detach z2 web-s1 10.0.0.9",
            ][..],
        ),
        (unavailable(), &["attach z1 web-s1 10.0.0.1"]),
    ] {
        let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
        given(&mut world, "z2", "10.0.0.9");
        world.fail("attach", error.clone());
        let target = [("z1", "10.0.0.1"), ("z2", "10.0.0.2")];
        assert_eq!(sync(&mut neg, &mut world, &target), Err(Error::Api(error)));
        assert_eq!(world.take_asked()[4..], *expected);
        world.record.expect_metric(
            "trueup_neg_operations_total{operation=\"attach\",result=\"not-started\"}",
            1.0,
        );
        assert_eq!(advance(&mut neg, &mut world, 5000), [(1, true)]);
    }
}

#[test]
fn the_first_error_is_the_answer() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    world.fail("ensure", ApiError::NotFound);
    world.fail("attach", unavailable());
    let target = [("z1", "10.0.0.1"), ("z2", "10.0.0.2")];
    assert_eq!(sync(&mut neg, &mut world, &target), Err(Error::Api(ApiError::NotFound)));
}

#[test]
fn a_neg_of_the_target_that_vanished_is_an_error() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    sync(&mut neg, &mut world, &[("z1", "")]).unwrap();
    world.negs.clear();
    assert_eq!(
        sync(&mut neg, &mut world, &[("z1", "")]),
        Err(Error::Api(ApiError::NotFound))
    );
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "")]), Ok((0, 0, 0, None)));
}

#[test]
fn failed_operations_share_a_timer_and_a_success_sets_the_delay_back() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    let target = [("z1", "10.0.0.1"), ("z2", "10.0.0.2")];
    sync(&mut neg, &mut world, &target).unwrap();
    assert!(!end(&mut neg, &mut world, 1, Some("quota")));
    advance(&mut neg, &mut world, 2000);
    assert!(!end(&mut neg, &mut world, 2, Some("quota")));
    assert_eq!(advance(&mut neg, &mut world, 3000), [(1, true)]);
    world.take_asked();
    // The NEG may be the cause of the failure: ensure it again.
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((2, 0, 0, None)));
    assert_eq!(world.take_asked()[..2], ["ensure z1 web-s1", "ensure z2 web-s1"]);
    assert!(end(&mut neg, &mut world, 3, None));
    assert!(!end(&mut neg, &mut world, 4, Some("quota")));
    assert_eq!(advance(&mut neg, &mut world, 5000), [(2, true)]);
    sync(&mut neg, &mut world, &target).unwrap();
    // Neither a sync nor a success touches the timer of operations.
    assert!(!end(&mut neg, &mut world, 5, Some("quota")));
    sync(&mut neg, &mut world, &target).unwrap();
    assert!(end(&mut neg, &mut world, 6, None));
    assert_eq!(advance(&mut neg, &mut world, 10_000), [(3, true)]);
    world
        .record
        .expect_metric("trueup_neg_retries_total{cause=\"operation\"}", 3.0);
    world.record.expect_metric(
        "trueup_neg_operations_total{operation=\"attach\",result=\"failure\"}",
        4.0,
    );
}

#[test]
fn an_unknown_operation_asks_for_a_sync_where_it_succeeded() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    assert!(neg.on_operation(&mut world, 7, None));
    assert!(!neg.on_operation(&mut world, 7, Some("x".to_owned())));
    assert!(!neg.on_timer(&mut world, 9));
    assert!(world.record.metrics.is_empty() && world.timers.is_empty());
}
