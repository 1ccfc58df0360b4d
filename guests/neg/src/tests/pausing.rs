//! Pause and continue, event by event.

use super::{advance, instance};
use crate::neg::Neg;
use crate::simulated::Simulation;
use trueup_guest::Guest as _;

/// The failure of a detachment.
const FAILED: Option<&str> = Some("detach failed");

fn paused() -> (Neg, Simulation) {
    let (mut neg, mut world) = (instance("{}"), Simulation::default());
    neg.migrator.pause(&mut world, &neg.settings);
    neg.migrator.pause(&mut world, &neg.settings);
    assert!(neg.migrator.is_paused(&neg.settings));
    world.record.expect_metric("trueup_neg_migration_paused", 1.0);
    (neg, world)
}

#[test]
fn continue_after_a_failure_is_at_once() {
    let (mut neg, mut world) = paused();
    neg.migrator.resume(&mut world, &neg.settings, FAILED);
    assert!(!neg.migrator.is_paused(&neg.settings));
    world.record.expect_metric("trueup_neg_migration_paused", 0.0);
    assert_eq!(advance(&mut neg, &mut world, 60_000), []);
}

#[test]
fn continue_after_a_success_waits_and_events_meanwhile_change_nothing() {
    let (mut neg, mut world) = paused();
    neg.migrator.resume(&mut world, &neg.settings, None);
    advance(&mut neg, &mut world, 30_000);
    let snapshot = neg.snapshot();
    neg.migrator.resume(&mut world, &neg.settings, None);
    neg.migrator.resume(&mut world, &neg.settings, FAILED);
    neg.migrator.pause(&mut world, &neg.settings);
    assert_eq!(neg.snapshot(), snapshot);
    assert_eq!(advance(&mut neg, &mut world, 29_999), []);
    assert!(neg.migrator.is_paused(&neg.settings));
    assert_eq!(advance(&mut neg, &mut world, 1), [(1, true)]);
    assert!(!neg.migrator.is_paused(&neg.settings) && !neg.on_timer(&mut world, 1));
    world.record.expect_metric("trueup_neg_migration_paused", 0.0);
    assert_eq!(advance(&mut neg, &mut world, 60_000), []);
}

#[test]
fn continue_without_a_pause_does_nothing() {
    let (mut neg, mut world) = (instance("{}"), Simulation::default());
    let snapshot = neg.snapshot();
    neg.migrator.resume(&mut world, &neg.settings, None);
    neg.migrator.resume(&mut world, &neg.settings, FAILED);
    assert_eq!(neg.snapshot(), snapshot);
    assert!(world.timers.is_empty() && world.record.metrics.is_empty());
}
