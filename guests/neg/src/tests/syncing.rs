//! `syncer.sync` without API errors, and what it refuses.

use super::{CONFIG, Error, advance, end, given, groups, instance, sync, there};
use crate::bindings::trueup::neg::api;
use crate::simulated::Simulation;
use trueup_guest::Guest as _;

#[test]
fn a_new_neg_is_made_and_filled_and_pending_attachments_count() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    let target = [("z1", "10.0.0.2 10.0.0.1")];
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((2, 0, 0, None)));
    let asked = [
        "ensure z1 web-s1",
        "list z1 web-s1",
        "attach z1 web-s1 10.0.0.1 10.0.0.2",
    ];
    assert_eq!(world.take_asked(), asked);
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 0, 0, None)));
    assert_eq!(world.take_asked(), ["list z1 web-s1"]);
    world.record.expect_metric("trueup_neg_in_flight_endpoints", 2.0);
    assert!(end(&mut neg, &mut world, 1, None));
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 0, 0, None)));
    assert_eq!(there(&world, "z1"), "10.0.0.1 10.0.0.2");
    world.record.expect_metric("trueup_neg_in_flight_endpoints", 0.0);
    world.record.expect_metric(
        "trueup_neg_operations_total{operation=\"attach\",result=\"success\"}",
        1.0,
    );
    world
        .record
        .expect_metric("trueup_neg_operation_endpoints_total{operation=\"attach\"}", 2.0);
    world.record.expect_metric("trueup_neg_syncs_total{result=\"ok\"}", 3.0);
}

#[test]
fn attachments_come_before_detachments_location_by_location_in_batches() {
    let config = r#"{"neg_names": {"s1": "web-s1", "s2": "web-s2"}, "max_endpoints_per_operation": 2}"#;
    let (mut neg, mut world) = (instance(config), Simulation::default());
    given(&mut world, "z1", "10.0.0.9");
    given(&mut world, "z2", "10.0.0.8");
    let target = [
        ("z2", "10.0.0.5"),
        ("z1/s2", "10.0.0.3 10.0.0.2 10.0.0.1"),
        ("z1/s1", ""),
    ];
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((4, 2, 0, None)));
    let asked = [
        "ensure z1 web-s1",
        "ensure z1 web-s2",
        "ensure z2 web-s1",
        "list z1 web-s1",
        "list z1 web-s2",
        "list z2 web-s1",
        "attach z1 web-s2 10.0.0.1 10.0.0.2",
        "attach z1 web-s2 10.0.0.3",
        "attach z2 web-s1 10.0.0.5",
        "detach z1 web-s1 10.0.0.9",
        "detach z2 web-s1 10.0.0.8",
    ];
    assert_eq!(world.take_asked(), asked);
}

#[test]
fn what_is_in_flight_is_left_alone_until_it_ended() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(&mut world, "z1", "10.0.0.2");
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "10.0.0.1")]), Ok((1, 1, 0, None)));
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "10.0.0.2")]), Ok((0, 0, 2, None)));
    assert!(end(&mut neg, &mut world, 1, None));
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "10.0.0.2")]), Ok((0, 1, 1, None)));
    assert!(end(&mut neg, &mut world, 2, None));
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "10.0.0.2")]), Ok((1, 0, 0, None)));
    assert!(end(&mut neg, &mut world, 3, None));
    assert!(end(&mut neg, &mut world, 4, None));
    assert_eq!(there(&world, "z1"), "10.0.0.2");
}

#[test]
fn a_form_waits_for_its_twin_in_flight_in_both_directions() {
    for (first, second) in [("10.0.0.1", "10.0.0.1+fd00::1"), ("10.0.0.1+fd00::1", "fd00::1")] {
        let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
        assert_eq!(sync(&mut neg, &mut world, &[("z1", first)]), Ok((1, 0, 0, None)));
        // The target now wants the other form: the filter puts back the pending one, and both stay alone.
        assert_eq!(
            sync(&mut neg, &mut world, &[("z1", second)]),
            Ok((0, 0, 1, None)),
            "{second}"
        );
        assert!(!neg.migrator.is_paused(&neg.settings));
        // At another location nothing is in its way.
        assert_eq!(
            sync(&mut neg, &mut world, &[("z1", first), ("z2", second)]),
            Ok((1, 0, 0, None))
        );
    }
}

#[test]
fn configured_zones_and_locations_that_left_the_target_are_emptied() {
    let config = r#"{"neg_names": {"s1": "web-s1"}, "zones": ["z9", "z0"]}"#;
    let (mut neg, mut world) = (instance(config), Simulation::default());
    given(&mut world, "z9", "10.0.0.9");
    assert_eq!(sync(&mut neg, &mut world, &[("z1", "10.0.0.1")]), Ok((1, 1, 0, None)));
    assert!(end(&mut neg, &mut world, 1, None) && end(&mut neg, &mut world, 2, None));
    world.take_asked();
    assert_eq!(sync(&mut neg, &mut world, &[("z2", "")]), Ok((0, 1, 0, None)));
    let asked = [
        "ensure z2 web-s1",
        "list z0 web-s1",
        "list z1 web-s1",
        "list z2 web-s1",
        "list z9 web-s1",
        "detach z1 web-s1 10.0.0.1",
    ];
    assert_eq!(world.take_asked(), asked);
    // The syncer asks once more for a location that has gone, and then forgets it.
    world.negs.remove(&("z1".to_owned(), "web-s1".to_owned()));
    assert!(!end(&mut neg, &mut world, 3, None));
    assert_eq!(sync(&mut neg, &mut world, &[]), Ok((0, 0, 0, None)));
    world.take_asked();
    assert_eq!(sync(&mut neg, &mut world, &[]), Ok((0, 0, 0, None)));
    assert_eq!(
        world.take_asked(),
        ["list z0 web-s1", "list z2 web-s1", "list z9 web-s1"]
    );
}

#[test]
fn addresses_are_compared_by_value_and_other_text_is_detached_as_is() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    given(
        &mut world,
        "z1",
        "10.0.0.1+fd00:0::1 ::ffff:1.2.3.4 010.0.0.2 fd00::3 FD00::3",
    );
    let target = [("z1", "10.0.0.1+FD00:0::0001 10.0.0.1+fd00::1 FD00:0::3")];
    assert_eq!(sync(&mut neg, &mut world, &target), Ok((0, 2, 0, None)));
    assert_eq!(world.take_asked()[2..], ["detach z1 web-s1 ::ffff:1.2.3.4 010.0.0.2"]);
}

#[test]
fn what_sync_refuses_has_no_effect() {
    let config = r#"{"neg_names": {"s2": "web-s2", "s1": "web-s1"}}"#;
    let (mut neg, mut world) = (instance(config), Simulation::default());
    let before = neg.snapshot();
    for (target, error) in [
        (
            &[("/s1", "")][..],
            r#"target[0].location.zone: "" is empty, it must name a zone"#,
        ),
        (
            &[("z1", ""), ("z1/s3", "x")],
            r#"target[1].location.subnet: "s3" is not in neg_names, known are "s1", "s2""#,
        ),
        (
            &[("z1", ""), ("z2", ""), ("z1", "x")],
            r#"target[2].location: zone "z1" subnet "s1" is a duplicate, each location may come once"#,
        ),
        (
            &[("z1", "10.0.0.1 fd00::1+x#0")],
            r#"target[0].endpoints[1].ip: "fd00::1" is not an IPv4 address, it must be one or empty"#,
        ),
        (
            &[("z1", "10.0.0.1+x#0")],
            r#"target[0].endpoints[0].ipv6: "x" is not an IPv6 address, it must be one or empty"#,
        ),
        (
            &[("z1", "::ffff:10.0.0.1")],
            r#"target[0].endpoints[0].ipv6: "::ffff:10.0.0.1" is not an IPv6 address, it must be one or empty"#,
        ),
        (
            &[("z1", "#0")],
            "target[0].endpoints[0]: ip and ipv6 are both empty, one must be given",
        ),
        (
            &[("z1", "10.0.0.1#080")],
            r#"target[0].endpoints[0].port: "080" is not a port, it must be 1 to 65535 or empty"#,
        ),
    ] {
        assert_eq!(
            sync(&mut neg, &mut world, target),
            Err(Error::InvalidInput(error.to_owned()))
        );
    }
    assert_eq!((neg.snapshot(), world.take_asked()), (before, Vec::new()));
    assert_eq!(advance(&mut neg, &mut world, 3_600_000), []);
    assert_eq!(
        world.record.metrics.into_iter().collect::<Vec<_>>(),
        [("trueup_neg_syncs_total{result=\"invalid-input\"}".to_owned(), 8.0)]
    );
    let error = r#"target[0].location.subnet: "s1" is not in neg_names, known are none"#;
    let mut world = Simulation::default();
    assert_eq!(
        sync(&mut instance("{}"), &mut world, &[("z1", "")]),
        Err(Error::InvalidInput(error.to_owned()))
    );
}

#[test]
fn an_endpoint_without_port_and_with_any_node_is_taken() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    assert_eq!(
        sync(&mut neg, &mut world, &[("z1", "10.0.0.1#@ 10.0.0.1#65535@x/y")]),
        Ok((2, 0, 0, None))
    );
}

#[test]
fn an_outage_while_listing_starts_nothing() {
    let (mut neg, mut world) = (instance(CONFIG), Simulation::default());
    let error = api::Error::Unavailable("503".to_owned());
    world.fail("list", error.clone());
    let target = [("z1", "10.0.0.1"), ("z2", "")];
    assert_eq!(
        neg.sync(&mut world, groups(&target)).map(|_| ()),
        Err(Error::Api(error))
    );
    assert_eq!(
        world.take_asked(),
        ["ensure z1 web-s1", "ensure z2 web-s1", "list z1 web-s1"]
    );
}
