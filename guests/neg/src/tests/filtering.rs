//! `migrator.filter`, rule by rule.

use super::{answer, groups, instance};
use crate::simulated::Simulation;

type Written<'w> = &'w [(&'w str, &'w str)];

fn check(config: &str, sets: [Written<'_>; 3], in_error_state: bool, expected: (&str, &str, Option<&str>, u32)) {
    let mut world = Simulation::default();
    let [add, remove, committed] = sets.map(groups);
    let filtered = instance(config).filter(&mut world, add, remove, committed, in_error_state);
    let (add, remove, detaching, migrating) = answer(&filtered);
    assert_eq!(
        (add.as_str(), remove.as_str(), detaching.as_deref(), migrating),
        expected
    );
}

#[test]
fn a_dual_stack_endpoint_opposite_a_twin_migrates_in_both_directions() {
    for (add, remove) in [
        ("10.0.0.1+fd00::1", "10.0.0.1"),
        ("10.0.0.1+fd00::1", "fd00::1"),
        ("10.0.0.1", "10.0.0.1+fd00::1"),
        ("fd00::1", "10.0.0.1+fd00::1"),
    ] {
        let expected = ("", &*format!("z1/s1: {remove}"), Some("z1/s1"), 1);
        check("{}", [&[("z1", add)], &[("z1", remove)], &[]], false, expected);
    }
}

#[test]
fn another_port_node_or_location_is_no_twin() {
    for (add, remove, place) in [
        ("10.0.0.1+fd00::1", "10.0.0.1#81", "z1/s1"),
        ("10.0.0.1+fd00::1", "10.0.0.1@n2", "z1/s1"),
        ("10.0.0.1+fd00::1", "10.0.0.1", "z1/s2"),
        ("10.0.0.1+fd00::1", "10.0.0.1", "z2/s1"),
        // The comparison is by text: another spelling is another endpoint.
        ("10.0.0.1+fd00::1", "FD00::1", "z1/s1"),
        ("10.0.0.1", "fd00::1", "z1/s1"),
    ] {
        let expected = (&*format!("z1/s1: {add}"), &*format!("{place}: {remove}"), None, 0);
        check("{}", [&[("z1", add)], &[(place, remove)], &[]], false, expected);
    }
}

#[test]
fn twins_on_the_same_side_do_not_migrate() {
    let both = "10.0.0.1 10.0.0.1+fd00::1";
    let expected = ("z1/s1: 10.0.0.1 10.0.0.1+fd00::1", "", None, 0);
    check("{}", [&[("z1", both)], &[], &[]], false, expected);
    let expected = ("", "z1/s1: 10.0.0.1 10.0.0.1+fd00::1", None, 0);
    check("{}", [&[], &[("z1", both)], &[]], false, expected);
}

#[test]
fn an_endpoint_on_both_sides_migrates_only_where_a_twin_is_opposite() {
    let sides: [Written<'_>; 3] = [
        &[("z1", "10.0.0.1+fd00::1")],
        &[("z1", "10.0.0.1+fd00::1 10.0.0.1")],
        &[],
    ];
    // 10.0.0.1 is put back; the dual-stack form of `remove` was never taken out.
    let expected = ("", "z1/s1: 10.0.0.1 10.0.0.1+fd00::1", Some("z1/s1"), 1);
    check("{}", sides, false, expected);
}

#[test]
fn both_twins_and_all_that_share_one_go_out() {
    let config = r#"{"fraction_of_migrating_endpoints": 0.001}"#;
    let remove = "10.0.0.1 fd00::1 10.0.0.9";
    let sides: [Written<'_>; 3] = [&[("z1", "10.0.0.1+fd00::1 10.0.0.1+fd00::99")], &[("z1", remove)], &[]];
    check(config, sides, false, ("", "z1/s1: fd00::1 10.0.0.9", Some("z1/s1"), 2));
}

#[test]
fn an_endpoint_that_is_no_address_can_be_a_twin_too() {
    let sides: [Written<'_>; 3] = [&[("z1", "a+b")], &[("z1", "a")], &[]];
    check("{}", sides, false, ("", "z1/s1: a", Some("z1/s1"), 1));
}

#[test]
fn answers_are_ascending_sets_without_empty_locations() {
    let add: Written<'_> = &[
        ("z2", "10.0.0.10 10.0.0.9 10.0.0.9"),
        (
            "z1",
            "x fd00::10 10.0.0.2 fd00::2 ::ffff:1.2.3.4 9.0.0.1+fd00::1 9.0.0.1",
        ),
        ("z3", ""),
    ];
    let remove: Written<'_> = &[
        ("z1", "10.0.0.3#9 10.0.0.3#443 10.0.0.3@n2 10.0.0.3"),
        ("z1", "10.0.0.1 10.0.0.3"),
    ];
    let expected = (
        "z1/s1: ::ffff:1.2.3.4 fd00::2 fd00::10 9.0.0.1 9.0.0.1+fd00::1 10.0.0.2 x; z2/s1: 10.0.0.9 10.0.0.10",
        "z1/s1: 10.0.0.1 10.0.0.3#443 10.0.0.3 10.0.0.3@n2 10.0.0.3#9",
        None,
        0,
    );
    check("{}", [add, remove, &[]], false, expected);
}

#[test]
fn equal_numbers_spelt_differently_go_by_bytes() {
    let expected = ("z1/s1: FD00::1 fd00:0::1 fd00::1 FD00::2", "", None, 0);
    check(
        "{}",
        [&[("z1", "fd00::1 FD00::2 fd00:0::1 FD00::1")], &[], &[]],
        false,
        expected,
    );
}

#[test]
fn the_largest_location_detaches_and_of_equals_the_first() {
    for (add, remove, place, migrating) in [
        (
            &[("z1", "10.0.0.1+fd00::1"), ("z2", "10.0.0.2+fd00::2 10.0.0.3+fd00::3")],
            &[("z1", "10.0.0.1"), ("z2", "10.0.0.2 10.0.0.3")],
            "z2/s1",
            3,
        ),
        (
            &[("z1/s2", "10.0.0.1+fd00::1"), ("z1/s1", "10.0.0.2+fd00::2")],
            &[("z1/s2", "10.0.0.1"), ("z1/s1", "10.0.0.2")],
            "z1/s1",
            2,
        ),
    ] {
        let expected = ("", &*format!("{place}: 10.0.0.2"), Some(place), migrating);
        check("{}", [add, remove, &[]], false, expected);
    }
}

#[test]
fn an_empty_location_is_one_like_any_other() {
    let sides: [Written<'_>; 3] = [&[("/", "10.0.0.1+fd00::1")], &[("/", "10.0.0.1")], &[]];
    check("{}", sides, false, ("", "/: 10.0.0.1", Some("/"), 1));
}

/// This many endpoints from `10.0.first.1` on, with or without IPv6.
fn many(first: u8, count: u8, ipv6: bool) -> String {
    let endpoint = |n| {
        if ipv6 {
            format!("10.0.{first}.{n}+fd00::{first}:{n}")
        } else {
            format!("10.0.{first}.{n}")
        }
    };
    (1..=count).map(endpoint).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_share_of_committed_and_migrating_endpoints_goes_back_rounded_up() {
    for (fraction, migrating, committed, back) in [
        ("0.1", 5, 5, 1),
        ("0.1", 6, 5, 2),
        ("0.07", 10, 90, 7),
        ("0.07", 10, 91, 8),
        ("1", 4, 200, 4),
        ("0.000000001", 4, 0, 1),
        ("0.1", 2, 38, 2),
    ] {
        let (add, remove) = (many(0, migrating, true), many(0, migrating, false));
        let committed = many(1, committed, true);
        let expected = format!("z1/s1: {}", many(0, back, false));
        check(
            &format!(r#"{{"fraction_of_migrating_endpoints": {fraction}}}"#),
            [&[("z1", &add)], &[("z1", &remove)], &[("z3", &committed)]],
            false,
            ("", &expected, Some("z1/s1"), migrating.into()),
        );
    }
}

#[test]
fn committed_is_a_set_too() {
    // 10 of 5 different ones and 6 migrating: 11 give 2, 16 would too, but 10 give 1.
    let (add, remove, twice) = (many(0, 5, true), many(0, 5, false), many(1, 5, true));
    let committed: Written<'_> = &[("z3", &twice), ("z3", &twice)];
    let sides: [Written<'_>; 3] = [&[("z1", &add)], &[("z1", &remove)], committed];
    check("{}", sides, false, ("", "z1/s1: 10.0.0.1", Some("z1/s1"), 5));
}

#[test]
fn an_error_state_stops_the_migration_only_while_much_is_to_be_attached() {
    let remove: Written<'_> = &[("z1", "10.0.0.1")];
    let committed: Written<'_> = &[("z1", "10.0.0.11 10.0.0.12 10.0.0.13")];
    let much: Written<'_> = &[("z1", "10.0.0.1+fd00::1 10.0.0.21"), ("z2", "10.0.0.22")];
    let left = "z1/s1: 10.0.0.21; z2/s1: 10.0.0.22";
    check("{}", [much, remove, committed], true, (left, "", None, 1));
    check(
        "{}",
        [much, remove, committed],
        false,
        (left, "z1/s1: 10.0.0.1", Some("z1/s1"), 1),
    );
    let little: Written<'_> = &[("z1", "10.0.0.1+fd00::1 10.0.0.21")];
    let expected = ("z1/s1: 10.0.0.21", "z1/s1: 10.0.0.1", Some("z1/s1"), 1);
    check("{}", [little, remove, committed], true, expected);
    // With a threshold of 0 there are always too many.
    let config = r#"{"fraction_for_pending_attachment_threshold": 0}"#;
    check(
        config,
        [&[("z1", "10.0.0.1+fd00::1")], remove, committed],
        true,
        ("", "", None, 1),
    );
}

#[test]
fn a_detachment_at_time_zero_is_recent_and_one_that_never_was_is_not() {
    let add: Written<'_> = &[("z1", "10.0.0.1+fd00::1 10.0.0.2")];
    let remove: Written<'_> = &[("z1", "10.0.0.1")];
    let mut world = Simulation::default();
    let mut neg = instance("{}");
    let detaches = |neg: &mut crate::neg::Neg, world: &mut Simulation| {
        neg.filter(world, groups(add), groups(remove), Vec::new(), false)
            .detaching
            .is_some()
    };
    assert!(detaches(&mut neg, &mut world));
    neg.migrator.pause(&mut world, &neg.settings);
    neg.migrator.resume(&mut world, &neg.settings, None);
    super::advance(&mut neg, &mut world, 60_000);
    assert!(!detaches(&mut neg, &mut world));
    world.now_ms = 299_999;
    assert!(!detaches(&mut neg, &mut world));
    world.now_ms = 300_000;
    assert!(detaches(&mut neg, &mut world));
}

#[test]
fn a_clock_that_went_back_counts_as_no_time_passed() {
    let mut world = Simulation {
        now_ms: 1_000_000,
        ..Simulation::default()
    };
    let mut neg = instance(r#"{"migration_wait_ms": 0}"#);
    neg.migrator.pause(&mut world, &neg.settings);
    neg.migrator.resume(&mut world, &neg.settings, None);
    super::advance(&mut neg, &mut world, 0);
    world.now_ms = 10;
    let (add, remove) = (
        groups(&[("z1", "10.0.0.1+fd00::1 10.0.0.2")]),
        groups(&[("z1", "10.0.0.1")]),
    );
    assert_eq!(neg.filter(&mut world, add, remove, Vec::new(), false).detaching, None);
}

#[test]
fn switched_off_everything_passes_and_nothing_is_measured() {
    let mut world = Simulation::default();
    let mut neg = instance(r#"{"enable_dual_stack": false}"#);
    let add = groups(&[("z1", "10.0.0.2 10.0.0.1+fd00::1"), ("z1", "10.0.0.2")]);
    let filtered = neg.filter(
        &mut world,
        add,
        groups(&[("z1", "10.0.0.1"), ("z2", "")]),
        Vec::new(),
        true,
    );
    let expected = (
        "z1/s1: 10.0.0.1+fd00::1 10.0.0.2".to_owned(),
        "z1/s1: 10.0.0.1".to_owned(),
        None,
        0,
    );
    assert_eq!(answer(&filtered), expected);
    neg.migrator.pause(&mut world, &neg.settings);
    assert!(!neg.migrator.is_paused(&neg.settings));
    neg.migrator.resume(&mut world, &neg.settings, None);
    assert!(world.record.metrics.is_empty() && world.timers.is_empty());
}

#[test]
fn a_migration_lasts_from_the_first_filter_to_the_first_empty_one() {
    let mut world = Simulation::default();
    let mut neg = instance("{}");
    let mut filter = |world: &mut Simulation, add: &str, remove: &str| {
        world.now_ms += 1500;
        let committed = groups(&[("z1", "10.0.9.1 10.0.9.2 fd00::9 10.0.9.3+fd00::3")]);
        neg.filter(
            world,
            groups(&[("z1", add)]),
            groups(&[("z1", remove)]),
            committed,
            false,
        );
        world.record.metrics["trueup_neg_migration_unfinished_seconds"]
    };
    assert_eq!(filter(&mut world, "10.0.0.1+fd00::1", ""), 0.0);
    assert_eq!(filter(&mut world, "10.0.0.1+fd00::1", "10.0.0.1"), 0.0);
    assert_eq!(filter(&mut world, "10.0.0.1+fd00::1", "10.0.0.1"), 1.5);
    assert!(world.record.observed.is_empty());
    world.record.expect_metric("trueup_neg_migration_endpoints", 1.0);
    world
        .record
        .expect_metric("trueup_neg_migration_detachments_total", 2.0);
    assert_eq!(filter(&mut world, "", "10.0.0.1"), 0.0);
    assert_eq!(filter(&mut world, "", ""), 0.0);
    assert_eq!(world.record.observed["trueup_neg_migration_duration_seconds"], [3.0]);
    world.record.expect_metric("trueup_neg_migration_endpoints", 0.0);
    let committed = |stack: &str| world.record.metrics[&format!("trueup_neg_committed_endpoints{{type=\"{stack}\"}}")];
    assert_eq!(
        [committed("ipv4"), committed("ipv6"), committed("dual")],
        [2.0, 1.0, 1.0]
    );
}
