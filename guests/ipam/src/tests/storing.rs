//! What the guest writes when, and the effects of a failed write.

use trueup_guest::Guest as _;
use trueup_guest::Level;

use super::*;
use crate::simulated::{Asked, Fault};

fn whole(allocations: &[(&str, &str)]) -> Asked {
    Asked::Checkpoint(checkpoint(allocations))
}

fn rest(ipv4: &str, at: u64) -> Asked {
    Asked::Append(format!(
        r#"{{"op":"rest","addresses":[{{"ipv4":"{ipv4}","at":{at}}}]}}"#
    ))
}

/// Two addresses, one of them assigned, and room for one entry.
fn with_one_entry() -> (Datastore, Simulation) {
    let mut world = Simulation::default();
    let mut node = node(&mut world, r#"{"compact_after": 1}"#, &["10.0.0.1", "10.0.0.2"]);
    node.assign(&mut world, key("c1")).unwrap();
    (node, world)
}

#[test]
fn a_change_survives_unstored_rests_and_the_next_one_writes_all() {
    let (mut node, mut world) = with_one_entry();
    node.unassign(&mut world, key("c1")).unwrap();
    world.take_asked();
    world.take_lines();
    world.fail("append", disk_full());
    assert_eq!(node.assign(&mut world, key("c2")), assigned("10.0.0.2", 1));
    assert_eq!(world.take_asked(), [whole(&[("c2", "10.0.0.2")]), rest("10.0.0.1", 0)]);
    world.record.expect_metric("trueup_ipam_store_failures_total", 1.0);
    let warned = world
        .take_lines()
        .into_iter()
        .filter(|(level, _)| *level == Level::Warn);
    assert_eq!(warned.count(), 1);
    node.unassign(&mut world, key("c2")).unwrap();
    let both = r#"{"op":"rest","addresses":[{"ipv4":"10.0.0.1","at":0},{"ipv4":"10.0.0.2","at":0}]}"#;
    assert_eq!(world.take_asked(), [whole(&[]), Asked::Append(both.to_owned())]);
}

#[test]
fn with_one_entry_at_most_a_rest_fills_it() {
    let (mut node, mut world) = with_one_entry();
    node.assign(&mut world, key("c2")).unwrap();
    assert_eq!(
        world.take_asked(),
        [
            whole(&[("c1", "10.0.0.1")]),
            Asked::Append(entry("assign", "c2", "10.0.0.2", 0))
        ]
    );
    node.unassign(&mut world, key("c1")).unwrap();
    assert_eq!(world.take_asked(), [whole(&[("c2", "10.0.0.2")]), rest("10.0.0.1", 0)]);
    world.now_ms = 30_001;
    node.unassign(&mut world, key("c2")).unwrap();
    assert_eq!(world.take_asked(), [whole(&[]), rest("10.0.0.2", 30_001)]);
}

#[test]
fn a_failed_entry_that_was_stored_is_replaced_by_the_next_change() {
    let mut world = Simulation::default();
    let mut node = node(&mut world, "{}", &["10.0.0.1", "10.0.0.2"]);
    node.assign(&mut world, key("c1")).unwrap();
    world.faults.push_back(Fault {
        call: "append",
        error: disk_full(),
        has_effect: true,
    });
    assert_eq!(node.assign(&mut world, key("c2")), not_stored("unavailable: disk full"));
    assert_eq!(world.stored.as_ref().unwrap().entries.len(), 1);
    world.take_asked();
    node.unassign(&mut world, key("c1")).unwrap();
    assert_eq!(world.take_asked(), [whole(&[]), rest("10.0.0.1", 0)]);
}

#[test]
fn while_the_store_is_unread_force_goes_on_and_the_store_is_not_called() {
    let config = r#"{"checkpoint_migration_phase": 2, "unknown_allocations": "hold"}"#;
    let mut world = Simulation::default();
    let mut node = node(&mut world, config, &["10.0.0.1", "10.0.0.2"]);
    node.assign(&mut world, key("c1")).unwrap();
    node.assign(&mut world, key("c2")).unwrap();
    world.fail("restore", disk_full());
    node.read_backing_store(&mut world).unwrap_err();
    world.take_asked();
    world.take_lines();
    node.remove_eni(&mut world, "eni-1", true).unwrap();
    assert_eq!(world.take_asked(), []);
    world.record.expect_metric("trueup_ipam_store_failures_total", 0.0);
    world.record.expect_metric("trueup_ipam_force_removed_ips_total", 2.0);
    world.record.expect_metric("trueup_ipam_force_removed_enis_total", 1.0);
    let lines = world.take_lines();
    let (level, last) = lines.last().unwrap();
    assert_eq!(
        (*level, last.as_str()),
        (
            Level::Warn,
            "the removal was not stored, the next change makes up for it error=unavailable: disk full"
        )
    );
}

#[test]
fn a_failure_leaves_an_address_exactly_as_it_was() {
    let mut world = Simulation {
        now_ms: 1000,
        ..Simulation::default()
    };
    let mut node = node(&mut world, r#"{"compact_after": 0}"#, &["10.0.0.1"]);
    node.assign(&mut world, key("c1")).unwrap();
    node.unassign(&mut world, key("c1")).unwrap();
    world.now_ms = 50_000;
    let before = node.eni_infos();
    world.fail("checkpoint", disk_full());
    node.assign(&mut world, key("c1")).unwrap_err();
    assert_eq!(node.eni_infos(), before);
    node.assign(&mut world, key("c1")).unwrap();
    let before = node.eni_infos();
    world.fail("checkpoint", disk_full());
    node.unassign(&mut world, key("c1")).unwrap_err();
    assert_eq!(node.eni_infos(), before);
    assert_eq!(before.enis[0].addresses[0].unassigned_at_ms, Some(1000));
}

#[test]
fn a_failure_leaves_a_held_allocation_and_its_rest_as_they_were() {
    let config = r#"{"checkpoint_migration_phase": 2, "unknown_allocations": "hold"}"#;
    let rested = r#"{"op":"rest","addresses":[{"ipv4":"10.9.9.9","at":500}]}"#;
    let mut world = Simulation {
        now_ms: 1000,
        ..Simulation::storing(&checkpoint(&[("c2", "10.9.9.9")]), &[rested])
    };
    let mut node = node(&mut world, config, &["10.0.0.1"]);
    node.read_backing_store(&mut world).unwrap();
    let before = node.snapshot();
    assert!(
        before.contains(r#""resting":[{"ipv4":"10.9.9.9","at":500}]"#),
        "{before}"
    );
    let before = before.replace(r#""in_step":true"#, r#""in_step":false"#);
    world.now_ms = 2000;
    world.fail("checkpoint", disk_full());
    assert_eq!(node.assign(&mut world, key("c2")), not_stored("unavailable: disk full"));
    assert_eq!(node.snapshot(), before);
    world.fail("checkpoint", disk_full());
    assert_eq!(
        node.unassign(&mut world, key("c2")),
        not_stored("unavailable: disk full")
    );
    assert_eq!(node.snapshot(), before);
}
