//! What a reading takes over, what it drops and why, and what it can't read.

use trueup_guest::Guest as _;
use trueup_guest::Level;

use super::*;
use crate::bindings::trueup::checkpoint::store::Saved;
use crate::bindings::trueup::cri::sandboxes::Sandbox;
use crate::stored;

const DROP: &str = r#"{"checkpoint_migration_phase": 2}"#;
const HOLD: &str = r#"{"checkpoint_migration_phase": 3, "unknown_allocations": "hold"}"#;

#[test]
fn what_cannot_be_read_is_named_with_its_row() {
    let with = |allocations: &str| format!(r#"{{"version":"vpc-cni-ipam/1","allocations":{allocations}}}"#);
    let good = r#"{"networkName":"n","containerID":"c","ifName":"i","ipv4":"10.0.0.1"}"#;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for (data, text) in [
        (String::new(), "not JSON"),
        ("{".to_owned(), "not JSON"),
        (format!("{} x", with("[]")), "not JSON"),
        (format!("{}{}", with("[]"), with("[]")), "not JSON"),
        ("[".repeat(100_000), "not JSON"),
        (deep.clone(), "no version"),
        ("null".to_owned(), "no version"),
        (r#"["vpc-cni-ipam/1"]"#.to_owned(), "no version"),
        (r#"{"version":1}"#.to_owned(), "no version"),
        (r#"{"version":null,"allocations":7}"#.to_owned(), "no version"),
        (
            r#"{"version":"","allocations":7}"#.to_owned(),
            r#"unknown version ""; this guest reads "vpc-cni-ipam/1""#,
        ),
        (
            r#"{"allocations":[7],"version":"a\"b\n"}"#.to_owned(),
            r#"unknown version "a\"b\n"; this guest reads "vpc-cni-ipam/1""#,
        ),
        (with("{}"), "allocations is not a list"),
        (with("false"), "allocations is not a list"),
        (with("[null]"), "allocation 1 is malformed"),
        (with(&format!("[{good},[]]")), "allocation 2 is malformed"),
        (with(r#"[{"ipv4":1e999}]"#), "allocation 1 is malformed"),
        (with(r#"[{"networkName":{}}]"#), "allocation 1 is malformed"),
        (with(r#"[{"ifName":false}]"#), "allocation 1 is malformed"),
        (
            with(&format!(r#"[{good},{good},{{"containerID":{deep}}}]"#)),
            "allocation 3 is malformed",
        ),
    ] {
        let short: String = data.chars().take(80).collect();
        assert_eq!(
            stored::read(&data, &["nonsense".to_owned()]).unwrap_err(),
            format!("checkpoint: {text}"),
            "{short}"
        );
    }
    for data in [
        with("null"),
        with("[]"),
        r#" {"version":"vpc-cni-ipam/1"} "#.to_owned(),
        with(&format!(r#"[],"x":{deep}"#)),
    ] {
        assert_eq!(stored::read(&data, &[]).unwrap().claims, []);
    }
    for fine in [
        r#"[{}]"#.to_owned(),
        format!(r#"[{{"networkName":null,"later":{deep}}}]"#),
    ] {
        assert_eq!(stored::read(&with(&fine), &[]).unwrap().claims.len(), 1);
    }
}

#[test]
fn an_entry_that_cannot_be_read_is_named_with_its_row() {
    let data = checkpoint(&[]);
    let whole = entry("assign", "c1", "10.0.0.1", 7);
    let without = |from: &str, to: &str| {
        assert!(whole.contains(from));
        whole.replace(from, to)
    };
    let malformed = [
        String::new(),
        "[]".to_owned(),
        "{}".to_owned(),
        r#"{"op":1}"#.to_owned(),
        "[".repeat(100_000),
        format!("{whole}{whole}"),
        without(r#""networkName":"net","#, ""),
        without(r#""net""#, "null"),
        without(r#""net""#, r#""""#),
        without(r#""c1""#, "1"),
        without(r#""eth0""#, r#""""#),
        without("10.0.0.1", "10.0.0.01"),
        without("10.0.0.1", "::1"),
        without(r#""at":7"#, r#""at":7.0"#),
        without(r#""at":7"#, r#""at":-7"#),
        without(r#""at":7"#, r#""at":"7""#),
        without(r#""at":7"#, r#""at":18446744073709551616"#),
        without(r#","at":7"#, ""),
        without(r#""assign""#, r#""forget""#),
        without(r#""assign""#, r#""rest""#),
        r#"{"op":"forget","ipv4":"10.0.0.1","at":1}"#.to_owned(),
        r#"{"op":"forget","ipv4":["10.0.0.1",null],"at":1}"#.to_owned(),
        r#"{"op":"forget","ipv4":[]}"#.to_owned(),
        r#"{"op":"rest","addresses":[{"ipv4":"10.0.0.1"}]}"#.to_owned(),
        r#"{"op":"rest","addresses":["10.0.0.1"]}"#.to_owned(),
        r#"{"op":"rest","addresses":{}}"#.to_owned(),
    ];
    for entry in malformed {
        let short: String = entry.chars().take(120).collect();
        let error = stored::read(&data, &[whole.clone(), entry]).unwrap_err();
        assert_eq!(error, "checkpoint: entry 2 is malformed", "{short}");
    }
    let unknown = stored::read(&data, &[r#"{"op":"Assign","at":0}"#.to_owned()]).unwrap_err();
    assert_eq!(unknown, r#"checkpoint: entry 1 has the unknown op "Assign""#);
    let fine = [
        without(r#""at":7"#, r#""at":18446744073709551615,"later":[{}]"#),
        r#"{"ipv4":[],"op":"forget","at":0}"#.to_owned(),
        r#" { "op" : "rest" , "addresses" : [] } "#.to_owned(),
    ];
    assert_eq!(stored::read(&data, &fine).unwrap().claims.len(), 1);
}

#[test]
fn applying_an_entry_twice_is_harmless() {
    let data = checkpoint(&[("c1", "10.0.0.1"), ("c2", "10.0.0.2"), ("c1", "10.0.0.1")]);
    let entries = [
        entry("assign", "c3", "10.0.0.1", 5),
        entry("unassign", "c2", "10.0.0.2", 6),
        entry("unassign", "c9", "10.0.0.1", 7),
        entry("assign", "c3", "10.0.0.4", 8),
        r#"{"op":"forget","ipv4":["10.0.0.2","10.0.0.9"],"at":3}"#.to_owned(),
    ];
    let once = stored::read(&data, &entries).unwrap();
    let twice: Vec<String> = entries
        .iter()
        .flat_map(|entry| [entry.clone(), entry.clone()])
        .collect();
    let twice = stored::read(&data, &twice).unwrap();
    assert_eq!(
        (&once.claims, &once.unassigned_at_ms),
        (&twice.claims, &twice.unassigned_at_ms)
    );
    let claims: Vec<_> = once
        .claims
        .iter()
        .map(|claim| (&*claim.key.fields().container_id, &*claim.ipv4))
        .collect();
    assert_eq!(claims, [("c3", "10.0.0.4")]);
    let times: Vec<_> = once
        .unassigned_at_ms
        .iter()
        .map(|(address, at)| (address.to_string(), *at))
        .collect();
    let expected = [("10.0.0.1", 7), ("10.0.0.2", 3), ("10.0.0.9", 3)];
    assert_eq!(times, expected.map(|(address, at)| (address.to_owned(), at)));
}

#[test]
fn many_claims_of_one_address_are_folded_in_a_moment() {
    let claims: Vec<(String, &str)> = (0..20_000).map(|n| (format!("c{n}"), "10.0.0.1")).collect();
    let claims: Vec<(&str, &str)> = claims
        .iter()
        .map(|(container, ipv4)| (container.as_str(), *ipv4))
        .collect();
    let entries: Vec<String> = (0..20_000)
        .map(|n| entry("unassign", &format!("d{n}"), "10.0.0.1", n))
        .collect();
    let stored = stored::read(&checkpoint(&claims), &entries).unwrap();
    assert_eq!((stored.claims.len(), stored.unassigned_at_ms.len()), (20_000, 1));
}

/// Reads the store and returns each drop's address and reason.
fn dropped(world: &mut Simulation, node: &mut Datastore) -> Vec<String> {
    world.take_lines();
    node.read_backing_store(world).unwrap();
    let lines = world.take_lines().into_iter();
    let dropped = lines.filter(|(level, line)| *level == Level::Warn && line.starts_with("an allocation is dropped"));
    let words = |line: &str| line.split_once(" address=").map(|(_, words)| words.to_owned());
    dropped.filter_map(|(_, line)| words(&line)).collect()
}

#[test]
fn each_drop_says_why_and_the_first_keeps_the_address() {
    let data = r#"{"version":"vpc-cni-ipam/1","allocations":[
        {"networkName":"n","containerID":"c1","ifName":"i","ipv4":"10.0.0.1"},
        {"networkName":"n","containerID":"c1","ifName":"i","ipv4":"10.0.0.1"},
        {"networkName":"n","containerID":"c2","ifName":"i","ipv4":"10.0.0.1"},
        {"networkName":"n","containerID":"c1","ifName":"i","ipv4":"10.0.0.2"},
        {"networkName":"n","containerID":"c3","ipv4":"10.0.0.3"},
        {"networkName":"n","containerID":"c4","ifName":"i","ipv4":"010.0.0.4"},
        {"networkName":"n","containerID":"c5","ifName":"i","ipv4":"10.9.9.9"},
        {"ipv4":"10.9.9.8"}
    ]}"#;
    let mut world = Simulation::storing(data, &[]);
    let mut here = node(&mut world, DROP, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let mut expected = vec![
        "10.0.0.1 why=another pod has the address",
        "10.0.0.2 why=the pod has another address",
        "10.0.0.3 why=its key is not whole",
        "010.0.0.4 why=it is no IPv4 address",
        "10.9.9.9 why=no ENI has the address",
        "10.9.9.8 why=no ENI has the address",
    ];
    assert_eq!(dropped(&mut world, &mut here), expected);
    assert_eq!(here.stats().assigned, 1);
    assert!(here.snapshot().contains(r#""resting":[],"held":[],"#));
    // A dropped address that may have been used rests, in an ENI or not.
    let mut there = node(&mut world, HOLD, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    expected[4..].clone_from_slice(&["10.9.9.8 why=its key is not whole", ""]);
    assert_eq!(dropped(&mut world, &mut there), expected[..5]);
    let snapshot = there.snapshot();
    assert!(
        snapshot.contains(r#""resting":[{"ipv4":"10.9.9.8","at":0}],"#),
        "{snapshot}"
    );
    assert!(
        snapshot.contains(r#""ipv4":"10.9.9.9"}],"store":{"in_step":false"#),
        "{snapshot}"
    );
    assert_eq!(there.assign(&mut world, key("new")), Err(Error::NoAvailableIp));
}

#[test]
fn an_address_in_an_eni_wins_over_a_held_one_of_the_same_key() {
    let data = checkpoint(&[("c1", "10.9.9.9"), ("c1", "10.9.9.8"), ("c1", "10.0.0.1")]);
    let mut world = Simulation::storing(&data, &[]);
    let mut node = node(&mut world, HOLD, &["10.0.0.1"]);
    assert_eq!(
        dropped(&mut world, &mut node),
        [
            "10.9.9.8 why=the pod has another address",
            "10.9.9.9 why=the pod has an address that an ENI has"
        ]
    );
    assert_eq!(node.find(key("c1")), assigned("10.0.0.1", 1).ok());
    let snapshot = node.snapshot();
    let resting = r#""resting":[{"ipv4":"10.9.9.8","at":0},{"ipv4":"10.9.9.9","at":0}],"held":[]"#;
    assert!(snapshot.contains(resting), "{snapshot}");
}

#[test]
fn a_reading_lets_go_of_nothing_that_memory_has() {
    let mut world = Simulation::storing(&checkpoint(&[("c1", "10.9.9.9")]), &[]);
    let mut here = node(&mut world, HOLD, &["10.0.0.1"]);
    here.read_backing_store(&mut world).unwrap();
    here.assign(&mut world, key("c2")).unwrap();
    // Another writer has stored something: memory keeps its state, and the next change writes all of it.
    world.stored = Simulation::storing(&checkpoint(&[("c3", "10.9.9.9"), ("c4", "10.0.0.1")]), &[]).stored;
    here.read_backing_store(&mut world).unwrap();
    world.take_asked();
    here.unassign(&mut world, key("c2")).unwrap();
    assert_eq!(world.stored.unwrap().data, checkpoint(&[("c1", "10.9.9.9")]));
}

#[test]
fn what_a_snapshot_holds_stays_held_where_readings_drop() {
    let data = checkpoint(&[("c1", "10.9.9.9"), ("c2", "10.9.9.8")]);
    let mut world = Simulation::storing(&checkpoint(&[("c1", "10.9.9.9")]), &[]);
    let mut old = node(&mut world, HOLD, &["10.0.0.1"]);
    old.read_backing_store(&mut world).unwrap();
    let mut new = instance(&mut world, DROP);
    new.restore(&mut world, &old.snapshot()).unwrap();
    world.stored = Some(Saved {
        data,
        entries: Vec::new(),
    });
    assert_eq!(dropped(&mut world, &mut new), ["10.9.9.8 why=no ENI has the address"]);
    assert_eq!(new.find(key("c1")), assigned("10.9.9.9", -1).ok());
    world.record.expect_metric("trueup_ipam_held_allocations", 1.0);
}

#[test]
fn of_two_times_the_later_counts_and_none_is_later_than_now() {
    let mut world = Simulation {
        now_ms: 1000,
        ..Simulation::storing(&checkpoint(&[]), &[])
    };
    let mut node = node(&mut world, DROP, &["10.0.0.1", "10.0.0.2"]);
    node.read_backing_store(&mut world).unwrap();
    node.assign(&mut world, key("c1")).unwrap();
    node.unassign(&mut world, key("c1")).unwrap();
    let times = r#"{"op":"rest","addresses":[{"ipv4":"10.0.0.1","at":900},{"ipv4":"10.0.0.2","at":9999},{"ipv4":"10.0.0.3","at":9999}]}"#;
    world.stored = Simulation::storing(&checkpoint(&[]), &[times, &times.replace("9999", "9998")]).stored;
    world.now_ms = 2000;
    node.read_backing_store(&mut world).unwrap();
    let infos = node.eni_infos();
    let shown: Vec<_> = infos.enis[0]
        .addresses
        .iter()
        .map(|address| address.unassigned_at_ms)
        .collect();
    assert_eq!(shown, [Some(1000), Some(2000)]);
    assert!(node.snapshot().contains(r#""resting":[{"ipv4":"10.0.0.3","at":2000}]"#));
}

#[test]
fn a_failed_reading_changes_nothing_but_that_the_store_is_unread() {
    let bad = r#"{"op":"assign"}"#;
    let stored = checkpoint(&[("c1", "10.0.0.1"), ("c2", "10.9.9.9")]);
    let mut world = Simulation::storing(&stored, &[&entry("unassign", "c3", "10.0.0.2", 0), bad]);
    let mut node = node(&mut world, HOLD, &["10.0.0.1", "10.0.0.2"]);
    let before = node.snapshot();
    let why = "checkpoint: entry 2 is malformed";
    assert_eq!(node.read_backing_store(&mut world), not_stored(why));
    assert_eq!(
        world.take_lines(),
        [(Level::Error, format!("the reading failed error={why}"))]
    );
    let blocked = format!(r#""blocked":"{why}""#);
    assert_eq!(node.snapshot(), before.replace(r#""blocked":null"#, &blocked));
    // A later failure replaces the text.
    world.fail("restore", disk_full());
    assert_eq!(
        node.read_backing_store(&mut world),
        not_stored("unavailable: disk full")
    );
    assert_eq!(node.assign(&mut world, key("c9")), not_stored("unavailable: disk full"));
    // The state carries it along.
    let mut next = instance(&mut world, HOLD);
    next.restore(&mut world, &node.snapshot()).unwrap();
    assert_eq!(
        next.unassign(&mut world, key("c9")),
        not_stored("unavailable: disk full")
    );
    world.stored.as_mut().unwrap().entries.pop();
    next.read_backing_store(&mut world).unwrap();
    assert_eq!(next.allocated_ips().len(), 2);
}

#[test]
fn where_the_first_checkpoint_of_phase_1_fails_all_is_as_before() {
    let sandbox = |id: &str, ip: &str| Sandbox {
        id: id.to_owned(),
        ip: ip.to_owned(),
        namespace: "default".to_owned(),
        name: id.to_owned(),
    };
    let sandboxes = vec![
        sandbox("s1", "10.0.0.1"),
        sandbox("", "10.0.0.2"),
        sandbox("s3", "10.9.9.9"),
    ];
    let mut world = Simulation {
        sandboxes,
        ..Simulation::default()
    };
    let mut node = node(
        &mut world,
        r#"{"unknown_allocations": "hold"}"#,
        &["10.0.0.1", "10.0.0.2"],
    );
    let before = node.snapshot();
    world.fail("checkpoint", disk_full());
    assert_eq!(
        node.read_backing_store(&mut world),
        not_stored("unavailable: disk full")
    );
    assert_eq!(
        node.snapshot(),
        before.replace(r#""blocked":null"#, r#""blocked":"unavailable: disk full""#)
    );
    world.fail("append", disk_full());
    assert_eq!(node.read_backing_store(&mut world), Ok(()));
    world.record.expect_metric("trueup_ipam_store_failures_total", 2.0);
    assert_eq!((node.stats().assigned, node.allocated_ips().len()), (1, 2));
    // The pod without an id may use its address, which rests.
    assert_eq!(node.assign(&mut world, key("c9")), Err(Error::NoAvailableIp));
}

#[test]
fn a_store_that_lacks_what_memory_has_is_out_of_step() {
    let mut world = Simulation::storing(&checkpoint(&[("c1", "10.0.0.1")]), &[]);
    let mut node = node(&mut world, DROP, &["10.0.0.1", "10.0.0.2"]);
    node.read_backing_store(&mut world).unwrap();
    assert!(node.snapshot().contains(r#""in_step":true"#));
    world.stored = Simulation::storing(&checkpoint(&[]), &[]).stored;
    assert_eq!(dropped(&mut world, &mut node), [""; 0]);
    assert!(node.snapshot().contains(r#""in_step":false"#));
    node.assign(&mut world, key("c2")).unwrap();
    assert_eq!(
        world.stored.unwrap().data,
        checkpoint(&[("c1", "10.0.0.1"), ("c2", "10.0.0.2")])
    );
}
