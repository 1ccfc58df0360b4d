//! The answers, log lines and clock reads of a pod's calls.

use trueup_guest::Guest as _;
use trueup_guest::Level;

use super::*;

const HOLD: &str = r#"{"checkpoint_migration_phase": 2, "unknown_allocations": "hold"}"#;

#[test]
fn the_clock_is_read_where_time_matters_and_nowhere_else() {
    let mut world = Simulation::storing(&checkpoint(&[]), &[]);
    let mut node = instance(&mut world, HOLD);
    let mut check = |what: &str, expected: u32, node: &mut Datastore, call: fn(&mut Datastore, &mut Simulation)| {
        let before = world.readings;
        call(node, &mut world);
        assert_eq!(world.readings - before, expected, "{what}");
    };
    check("add-eni", 1, &mut node, |node, world| {
        node.add_eni(world, "eni-1", 1, false, false).unwrap();
    });
    check("add-eni, known", 0, &mut node, |node, world| {
        node.add_eni(world, "eni-1", 1, false, false).unwrap_err();
    });
    check("add", 0, &mut node, |node, world| {
        node.add_address(world, "eni-1", "10.0.0.1").unwrap();
        node.add_address(world, "eni-1", "10.0.0.2").unwrap();
    });
    check("read", 1, &mut node, |node, world| {
        node.read_backing_store(world).unwrap()
    });
    check("assign", 1, &mut node, |node, world| {
        node.assign(world, key("c1")).unwrap();
    });
    check("assign again", 0, &mut node, |node, world| {
        node.assign(world, key("c1")).unwrap();
    });
    check("find and lists", 0, &mut node, |node, _| {
        node.find(key("c1")).unwrap();
        assert_eq!((node.stats().assigned, node.eni_count()), (1, 1));
        assert_eq!(node.allocated_ips().len(), node.eni_infos().assigned_ips as usize);
    });
    check("unassign, unknown", 0, &mut node, |node, world| {
        node.unassign(world, key("c9")).unwrap_err();
    });
    check("unassign", 1, &mut node, |node, world| {
        node.unassign(world, key("c1")).unwrap();
    });
    check("delete what may rest", 1, &mut node, |node, world| {
        node.del_address(world, "eni-1", "10.0.0.1", false).unwrap();
    });
    check("delete what never was unassigned", 0, &mut node, |node, world| {
        node.del_address(world, "eni-1", "10.0.0.2", true).unwrap();
    });
    check("add what may rest", 1, &mut node, |node, world| {
        node.add_address(world, "eni-1", "10.0.0.1").unwrap();
    });
    check("remove unused", 1, &mut node, |node, world| {
        assert_eq!(node.remove_unused_eni(world, 0, 0), None);
    });
    check("remove what may rest", 1, &mut node, |node, world| {
        node.remove_eni(world, "eni-1", false).unwrap();
    });
    check("remove unused of none", 0, &mut node, |node, world| {
        assert_eq!(node.remove_unused_eni(world, 0, 0), None);
    });
}

#[test]
fn with_cooling_off_only_changes_have_a_time() {
    let mut world = Simulation::default();
    let mut node = node(&mut world, r#"{"cooling_period_ms": 0}"#, &["10.0.0.1"]);
    node.assign(&mut world, key("c1")).unwrap();
    node.unassign(&mut world, key("c1")).unwrap();
    let before = world.readings;
    node.remove_eni(&mut world, "eni-1", false).unwrap();
    assert_eq!(world.readings, before);
    assert!(node.snapshot().contains(r#""resting":[]"#));
}

#[test]
fn what_happens_to_a_pod_is_logged_with_its_key_address_and_interface() {
    let stored = checkpoint(&[("c7", "10.9.9.7"), ("c8", "10.9.9.8")]);
    let mut world = Simulation::storing(&stored, &[]);
    let mut node = node(&mut world, HOLD, &["10.0.0.1", "10.0.0.2"]);
    node.read_backing_store(&mut world).unwrap();
    node.add_address(&mut world, "eni-1", "10.9.9.7").unwrap();
    node.assign(&mut world, key("c1")).unwrap();
    node.assign(&mut world, key("c8")).unwrap();
    node.assign(&mut world, key("c2")).unwrap_err();
    node.unassign(&mut world, key("c1")).unwrap();
    node.unassign(&mut world, key("c1")).unwrap_err();
    node.del_address(&mut world, "eni-1", "10.9.9.7", true).unwrap();
    let pod = |container: &str| format!("network=net container={container} interface=eth0");
    let expected = [
        (
            Level::Info,
            format!(
                "the allocation is held until an ENI has its address {} address=10.9.9.7",
                pod("c7")
            ),
        ),
        (
            Level::Info,
            format!(
                "the allocation is held until an ENI has its address {} address=10.9.9.8",
                pod("c8")
            ),
        ),
        (
            Level::Info,
            format!(
                "a held allocation has its address now {} address=10.9.9.7 eni=eni-1",
                pod("c7")
            ),
        ),
        (
            Level::Info,
            format!("assigned {} address=10.0.0.1 eni=eni-1", pod("c1")),
        ),
        (
            Level::Warn,
            format!("a held allocation is given up {} address=10.9.9.8", pod("c8")),
        ),
        (
            Level::Info,
            format!("assigned {} address=10.0.0.2 eni=eni-1", pod("c8")),
        ),
        (Level::Error, format!("no address is free {}", pod("c2"))),
        (
            Level::Info,
            format!("unassigned {} address=10.0.0.1 eni=eni-1", pod("c1")),
        ),
        (Level::Warn, format!("the pod is unknown {}", pod("c1"))),
        (
            Level::Warn,
            format!(
                "the address is taken from its pod by force {} address=10.9.9.7 eni=eni-1",
                pod("c7")
            ),
        ),
    ];
    assert_eq!(world.take_lines(), expected);
}

#[test]
fn why_an_interface_is_kept_is_the_first_rule_that_holds() {
    let mut world = Simulation::default();
    let mut node = node(&mut world, "{}", &["10.0.0.1"]);
    let check = |node: &mut Datastore, world: &mut Simulation, targets: (u32, u32), why: &str| {
        assert_eq!(node.remove_unused_eni(world, targets.0, targets.1), None);
        assert_eq!(
            world.take_lines(),
            [(Level::Debug, format!("the ENI is kept eni=eni-1 why={why}"))]
        );
    };
    node.assign(&mut world, key("c1")).unwrap();
    world.take_lines();
    check(&mut node, &mut world, (0, 0), "it is too young");
    world.now_ms = 60_000;
    check(&mut node, &mut world, (9, 9), "an address of it is assigned");
    node.unassign(&mut world, key("c1")).unwrap();
    world.take_lines();
    check(&mut node, &mut world, (9, 9), "an address of it rests");
    world.now_ms = 90_001;
    check(&mut node, &mut world, (1, 1), "the others have too few free addresses");
    check(&mut node, &mut world, (0, 1), "the others have too few addresses");
    check(
        &mut node,
        &mut world,
        (u32::MAX, u32::MAX),
        "the others have too few free addresses",
    );
    // After the clock goes back, it is young again.
    world.now_ms = 0;
    check(&mut node, &mut world, (0, 0), "it is too young");
    world.now_ms = 90_001;
    assert_eq!(node.remove_unused_eni(&mut world, 0, 0).as_deref(), Some("eni-1"));
}

#[test]
fn errors_are_found_in_the_contracts_order() {
    let mut world = Simulation::default();
    let mut node = node(&mut world, "{}", &["10.0.0.1"]);
    world.fail("list-running", disk_full());
    node.read_backing_store(&mut world).unwrap_err();
    let empty = IpamKey {
        if_name: String::new(),
        ..key("c1")
    };
    assert_eq!(
        node.assign(&mut world, empty.clone()),
        Err(Error::InvalidKey("if-name".to_owned()))
    );
    assert_eq!(
        node.unassign(&mut world, empty),
        Err(Error::InvalidKey("if-name".to_owned()))
    );
    let unread = "container runtime: unavailable: disk full";
    assert_eq!(node.unassign(&mut world, key("c1")), not_stored(unread));
    assert_eq!(node.assign(&mut world, key("c1")), not_stored(unread));
    let invalid = Err(Error::InvalidIp("10.0.0.01".to_owned()));
    assert_eq!(node.del_address(&mut world, "eni-9", "10.0.0.01", true), invalid);
    assert_eq!(
        node.add_address(&mut world, "eni-9", "10.0.0.1"),
        Err(Error::UnknownEni)
    );
    world.record.expect_metric("trueup_ipam_no_available_ip_total", 0.0);
    world.record.expect_metric("trueup_ipam_store_failures_total", 0.0);
}

#[test]
fn a_clock_at_its_ends_is_a_clock() {
    for (then, now, expected) in [
        (u64::MAX, 0, "10.0.0.2"),
        (0, u64::MAX, "10.0.0.1"),
        (u64::MAX, u64::MAX, "10.0.0.2"),
    ] {
        let mut world = Simulation {
            now_ms: then,
            ..Simulation::default()
        };
        let mut node = node(&mut world, "{}", &["10.0.0.1", "10.0.0.2"]);
        node.assign(&mut world, key("c1")).unwrap();
        node.unassign(&mut world, key("c1")).unwrap();
        node.del_address(&mut world, "eni-1", "10.0.0.1", false).unwrap();
        world.now_ms = now;
        node.add_address(&mut world, "eni-1", "10.0.0.1").unwrap();
        assert_eq!(node.assign(&mut world, key("c2")), assigned(expected, 1));
        node.remove_unused_eni(&mut world, 0, 0);
        node.remove_eni(&mut world, "eni-1", true).unwrap();
    }
}

#[test]
fn five_thousand_addresses_are_given_out_and_come_back_by_one_entry_each() {
    let mut world = Simulation::default();
    let mut node = instance(&mut world, "{}");
    for eni in 0..50 {
        let id = format!("eni-{eni:02}");
        node.add_eni(&mut world, &id, eni, false, false).unwrap();
        for host in 0..100 {
            node.add_address(&mut world, &id, &format!("10.0.{eni}.{host}"))
                .unwrap();
        }
    }
    for pod in 0..5000 {
        let expected = assigned(&format!("10.0.{}.{}", pod / 100, pod % 100), pod / 100);
        assert_eq!(node.assign(&mut world, key(&format!("c{pod}"))), expected);
    }
    assert_eq!(node.assign(&mut world, key("one more")), Err(Error::NoAvailableIp));
    for pod in (0..5000).rev() {
        let expected = assigned(&format!("10.0.{}.{}", pod / 100, pod % 100), pod / 100);
        assert_eq!(node.unassign(&mut world, key(&format!("c{pod}"))), expected);
    }
    let stats = node.stats();
    assert_eq!((stats.total, stats.assigned), (5000, 0));
    let (mut whole, mut longest) = (0, 0);
    for asked in world.take_asked() {
        match asked {
            crate::simulated::Asked::Append(entry) if !entry.contains("rest") => longest = longest.max(entry.len()),
            crate::simulated::Asked::Checkpoint(_) => whole += 1,
            _ => {}
        }
    }
    // The first change, then one after each 1000 entries, a `rest` among them.
    assert_eq!(whole, 10);
    assert!(longest < 120, "{longest}");
}
