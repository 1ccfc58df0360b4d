//! Snapshot and restore.

use super::{CONFIG, Error, advance, end, given, instance, location, restart, sync};
use crate::bindings::trueup::neg::api::Error as ApiError;
use crate::simulated::Simulation;
use trueup_guest::Guest as _;

#[test]
fn a_restart_with_state_knows_its_operations_and_its_timers() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(&mut world, "z1", "10.0.0.1 10.0.0.2");
    let target = [("z1", "10.0.0.1+fd00::1 10.0.0.2+fd00::2")];
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 1, 0, Some(location("z1")))));
    let mut neg = restart(&neg, &mut world, CONFIG);
    assert!(neg.migrator.is_paused(&neg.settings));
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 0, 1, None)));
    assert!(end(&mut neg, &mut world, 1, None));
    advance(&mut neg, &mut world, 20_000);
    let mut neg = restart(&neg, &mut world, CONFIG);
    assert_eq!(advance(&mut neg, &mut world, 39_999), []);
    assert!(neg.migrator.is_paused(&neg.settings));
    assert_eq!(advance(&mut neg, &mut world, 1), [(1, true)]);
    assert!(!neg.migrator.is_paused(&neg.settings));
}

#[test]
fn timers_start_anew_in_order_and_at_once_where_their_time_has_passed() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(&mut world, "z1", "10.0.0.1 10.0.0.2");
    sync(&mut neg, &mut world, &[("z1", "10.0.0.1 10.0.0.2 10.0.0.3")]).unwrap();
    end(&mut neg, &mut world, 1, Some("quota"));
    world.now_ms += 100;
    world.fail("ensure", ApiError::Unauthorized);
    sync(&mut neg, &mut world, &[("z1", "")]).unwrap_err();
    world.now_ms += 100;
    neg.migrator.pause(&mut world, &neg.settings);
    neg.migrator.resume(&mut world, &neg.settings, None);
    let snapshot = neg.snapshot();
    world.restart();
    world.now_ms = 5050;
    let mut new = instance(CONFIG);
    new.restore(&mut world, &snapshot).unwrap();
    // The wait ends at 60200, the sync is retried at 5100, operations were due at 5000.
    assert_eq!(
        world.timers.iter().map(|(&id, &due)| (id, due)).collect::<Vec<_>>(),
        [(1, 60_200), (2, 5100), (3, 5050)]
    );
    assert_eq!(new.snapshot(), snapshot);
    assert_eq!(
        advance(&mut new, &mut world, 100_000),
        [(3, true), (2, true), (1, true)]
    );
    world
        .record
        .expect_metric("trueup_neg_retries_total{cause=\"sync\"}", 1.0);
}

#[test]
fn restoring_cancels_the_timers_of_this_instance() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    let fresh = neg.snapshot();
    neg.migrator.pause(&mut world, &neg.settings);
    neg.migrator.resume(&mut world, &neg.settings, None);
    world.fail("ensure", ApiError::Unauthorized);
    assert_eq!(
        sync(&mut neg, &mut world, &[("z1", "")]),
        Err(Error::Api(ApiError::Unauthorized))
    );
    assert_eq!(world.timers.len(), 2);
    neg.restore(&mut world, &fresh).unwrap();
    assert!(world.timers.is_empty() && !neg.migrator.is_paused(&neg.settings));
    assert_eq!(neg.snapshot(), fresh);
}

#[test]
fn a_snapshot_that_cannot_be_read_changes_nothing() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    neg.migrator.pause(&mut world, &neg.settings);
    let before = neg.snapshot();
    super::refusing::refuses(r#"{"version": 1}"#, |snapshot| neg.restore(&mut world, snapshot));
    assert_eq!(neg.snapshot(), before);
}

#[test]
fn the_version_is_at_the_top() {
    assert!(instance("{}").snapshot().starts_with(r#"{"version":1,"#));
}

#[test]
fn a_fresh_start_lists_again_and_starts_over() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    let target = [("z1", "10.0.0.1")];
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((1, 0, 0, None)));
    let mut neg = instance(CONFIG);
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((1, 0, 0, None)));
    assert!(end(&mut neg, &mut world, 1, None));
    assert!(end(&mut neg, &mut world, 2, None));
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 0, 0, None)));
}

#[test]
fn a_location_whose_subnet_lost_its_name_is_passed_over() {
    let (mut neg, mut world) = (
        instance(r#"{"neg_names": {"s1": "web-s1", "s2": "web-s2"}}"#),
        Simulation::default(),
    );
    sync(&mut neg, &mut world, &[("z1", ""), ("z1/s2", "10.0.0.1")]).unwrap();
    let mut neg = restart(&neg, &mut world, CONFIG);
    world.take_asked();
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "")]), Ok((0, 0, 0, None)));
    assert_eq!(world.take_asked(), ["list z1 web-s1"]);
}

#[test]
fn a_pause_does_not_outlive_its_detachment_while_dual_stack_is_off() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(&mut world, "z1", "10.0.0.1");
    let target = [("z1", "10.0.0.1+fd00::1")];
    sync(&mut neg, &mut world, &target).unwrap();
    let off = r#"{"neg_names": {"s1": "web-s1"}, "enable_dual_stack": false}"#;
    let mut neg = restart(&neg, &mut world, off);
    assert!(!neg.migrator.is_paused(&neg.settings));
    assert!(end(&mut neg, &mut world, 1, None));
    let neg = restart(&neg, &mut world, CONFIG);
    assert!(!neg.migrator.is_paused(&neg.settings));
}
