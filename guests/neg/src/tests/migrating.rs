//! Migrations as the syncer runs them.

use super::{CONFIG, Error, advance, end, given, instance, location, sync, there};
use crate::bindings::trueup::neg::api::Error as ApiError;
use crate::simulated::Simulation;

const DUAL: [(&str, &str); 1] = [("z1", "10.0.0.1+fd00::1 10.0.0.2+fd00::2 10.0.0.3+fd00::3")];

#[test]
fn three_endpoints_migrate_one_by_one() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(&mut world, "z1", "10.0.0.1 10.0.0.2 10.0.0.3");
    for round in 0..3 {
        let started = Ok((0, 1, 0, Some(location("z1"))));
        assert_eq!(sync(&mut neg, &mut world, &DUAL), started, "round {round}");
        assert!(neg.migrator.is_paused(&neg.settings));
        // The dual-stack form waits until its twin is gone.
        assert_eq!(sync(&mut neg, &mut world, &DUAL), Ok((0, 0, 1, None)));
        assert!(end(&mut neg, &mut world, 2 * round + 1, None));
        assert_eq!(sync(&mut neg, &mut world, &DUAL), Ok((1, 0, 0, None)));
        assert!(end(&mut neg, &mut world, 2 * round + 2, None));
        assert_eq!(sync(&mut neg, &mut world, &DUAL), Ok((0, 0, 0, None)));
        assert_eq!(advance(&mut neg, &mut world, 60_000), [(round + 1, true)]);
    }
    assert_eq!(sync(&mut neg, &mut world, &DUAL), Ok((0, 0, 0, None)));
    assert_eq!(there(&world, "z1"), DUAL[0].1);
}

#[test]
fn on_the_way_back_single_stack_waits_until_dual_stack_has_gone() {
    for single in ["10.0.0.1", "fd00::1"] {
        let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
        given(&mut world, "z1", "10.0.0.1+fd00::1");
        let target = [("z1", single)];
        assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 1, 0, Some(location("z1")))));
        assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 0, 1, None)));
        assert!(end(&mut neg, &mut world, 1, None));
        assert_eq!(sync(&mut neg, &mut world, &target), Ok((1, 0, 0, None)));
        assert!(end(&mut neg, &mut world, 2, None));
        assert_eq!(there(&world, "z1"), single);
    }
}

#[test]
fn a_failed_detachment_is_tried_again_after_the_retry_delay() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(&mut world, "z1", "10.0.0.1");
    let target = [("z1", "10.0.0.1+fd00::1")];
    let started = Ok((0, 1, 0, Some(location("z1"))));
    assert_eq!(sync(&mut neg, &mut world, &target), started);
    assert!(!end(&mut neg, &mut world, 1, Some("deadline exceeded")));
    assert!(!neg.migrator.is_paused(&neg.settings));
    assert_eq!(advance(&mut neg, &mut world, 5000), [(1, true)]);
    assert_eq!(sync(&mut neg, &mut world, &target), started);
}

#[test]
fn the_migration_waits_for_all_operations_and_fails_with_the_first() {
    let config = r#"{"neg_names": {"s1": "web-s1"}, "max_endpoints_per_operation": 1,
        "fraction_of_migrating_endpoints": 1}"#;
    for (first, second, timers) in [
        (None, None, &[(1, true)][..]),
        (Some("x"), None, &[(1, true)]),
        (None, Some("x"), &[(1, true)]),
    ] {
        let (mut neg, mut world) = (instance(config), Simulation::default());
        given(&mut world, "z1", "10.0.0.1 10.0.0.2");
        let target = [("z1", "10.0.0.1+fd00::1 10.0.0.2+fd00::2")];
        assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 2, 0, Some(location("z1")))));
        end(&mut neg, &mut world, 2, first);
        assert!(neg.migrator.is_paused(&neg.settings));
        end(&mut neg, &mut world, 1, second);
        // A pause continues afterwards only if both succeeded.
        assert_eq!(
            neg.migrator.is_paused(&neg.settings),
            first.is_none() && second.is_none()
        );
        assert_eq!(advance(&mut neg, &mut world, 60_000), timers);
        assert!(!neg.migrator.is_paused(&neg.settings));
    }
}

#[test]
fn operations_without_migration_endpoints_do_not_prolong_the_pause() {
    let config = r#"{"neg_names": {"s1": "web-s1"}, "max_endpoints_per_operation": 1}"#;
    let (mut neg, mut world) = (instance(config), Simulation::default());
    given(&mut world, "z1", "10.0.0.1 10.0.0.3");
    let target = [("z1", "10.0.0.3+fd00::3")];
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 2, 0, Some(location("z1")))));
    assert!(end(&mut neg, &mut world, 2, None));
    assert_eq!(advance(&mut neg, &mut world, 60_000), [(1, true)]);
    assert!(end(&mut neg, &mut world, 1, None));
    assert!(!neg.migrator.is_paused(&neg.settings));
}

#[test]
fn a_detachment_without_migration_endpoints_pauses_nothing() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(&mut world, "z1", "10.0.0.1 10.0.0.2");
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "10.0.0.1")]), Ok((0, 1, 0, None)));
    assert!(!neg.migrator.is_paused(&neg.settings));
}

#[test]
fn a_migration_operation_that_does_not_start_pauses_nothing() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(&mut world, "z1", "10.0.0.1");
    let refused = ApiError::Refused((412, "conditionNotMet".to_owned()));
    world.fail("detach", refused.clone());
    let target = [("z1", "10.0.0.1+fd00::1")];
    assert_eq!(sync(&mut neg, &mut world, &target), Err(Error::Api(refused)));
    assert!(!neg.migrator.is_paused(&neg.settings));
}

#[test]
fn one_operation_that_does_not_start_fails_the_whole_detachment() {
    let config = r#"{"neg_names": {"s1": "web-s1"}, "max_endpoints_per_operation": 1,
        "fraction_of_migrating_endpoints": 1}"#;
    let target = [("z1", "10.0.0.1+fd00::1 10.0.0.2+fd00::2")];
    let error = ApiError::Unavailable("503".to_owned());
    let (mut neg, mut world) = (instance(config), Simulation::default());
    given(&mut world, "z1", "10.0.0.1 10.0.0.2");
    // The second of two: the first is already in flight.
    sync(&mut neg, &mut world, &[("z1", "10.0.0.1 10.0.0.2")]).unwrap();
    world.fail("detach", ApiError::NotFound);
    world.fail("detach", error.clone());
    assert_eq!(sync(&mut neg, &mut world, &target), Err(Error::Api(ApiError::NotFound)));
    // Neither started, so nothing is paused.
    assert!(!neg.migrator.is_paused(&neg.settings) && world.started.is_empty());
    world.fail("detach", ApiError::NotFound);
    assert_eq!(sync(&mut neg, &mut world, &target), Err(Error::Api(ApiError::NotFound)));
    // The first did not start, so the second is the first that did.
    assert!(neg.migrator.is_paused(&neg.settings) && world.started.len() == 1);
    assert!(end(&mut neg, &mut world, 1, None));
    assert!(neg.migrator.is_paused(&neg.settings));
}

#[test]
fn an_error_state_holds_the_migration_until_the_attachments_are_under_way() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(&mut world, "z1", "10.0.0.1");
    neg.set_error_state(&mut world, true);
    world.record.expect_metric("trueup_neg_error_state", 1.0);
    let target = [("z1", "10.0.0.1+fd00::1 10.0.0.5")];
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((1, 0, 0, None)));
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 1, 0, Some(location("z1")))));
}

#[test]
fn switched_off_both_forms_go_at_once_but_one_after_the_other() {
    let config = r#"{"neg_names": {"s1": "web-s1"}, "enable_dual_stack": false}"#;
    let (mut neg, mut world) = (instance(config), Simulation::default());
    given(&mut world, "z1", "10.0.0.1 10.0.0.2 10.0.0.3");
    // The dual-stack forms are not in flight yet, nor are their twins: all start.
    assert_eq!(sync(&mut neg, &mut world, &DUAL), Ok((3, 3, 0, None)));
    assert!(!neg.migrator.is_paused(&neg.settings));
}
