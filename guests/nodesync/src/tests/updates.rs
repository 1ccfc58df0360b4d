//! What the guest reports about each node, and what it leaves out with a warning.

use trueup_guest::bindings::trueup::etcd::kv;
use trueup_guest::etcd;

use super::{CONFIG, OWN_KEY, instance, kube, line, lines, listed, put, put_kube, record, state, synced};
use crate::bindings::exports::trueup::nodesync::node_sync::{Change, Error};
use crate::bindings::trueup::nodesync::types::IpVersion;
use crate::simulated::Simulation;

#[test]
fn what_cannot_be_a_record_is_ignored_with_a_warning() {
    let mut world = Simulation::default();
    let mut node_sync = synced(
        &mut world,
        &[(2, "me", ""), (0, "x", ""), (7, "", ""), (3, "b", ""), (3, "a", "")],
    );
    assert_eq!(lines(&node_sync.all_nodes()), ["3 a [] []", "2 me [] []"]);
    assert_eq!(
        world.record.messages(),
        [
            "a record without id or name is ignored id=0 node=x",
            "two records have one id: the second name is ignored id=3 node=b",
            "a record without id or name is ignored id=7 node=",
        ]
    );
    world.record.lines.clear();
    assert_eq!(node_sync.update(&mut world, put(0, "x", "")), Ok(vec![]));
    assert_eq!(node_sync.update(&mut world, put(7, "", "")), Ok(vec![]));
    assert_eq!(node_sync.update(&mut world, put_kube("", "10.0.0.1", "")), Ok(vec![]));
    assert_eq!(world.record.lines.len(), 3, "{:?}", world.record.lines);
}

#[test]
fn addresses_that_do_not_parse_are_left_out_with_a_warning() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "")]);
    let records = "192.168.16.3/24 10.0.0.1 ::ffff:10.0.0.1/24 192.168.016.3/24 FD00::3/64 fd00:0::3/64";
    node_sync.update(&mut world, put(3, "a", records)).unwrap();
    node_sync
        .update(
            &mut world,
            put_kube("a", "::ffff:10.0.0.3 10.0.0.3 fe80::1%eth0", "10.1.3.9/33"),
        )
        .unwrap();
    assert_eq!(
        lines(&node_sync.all_nodes()),
        ["3 a [192.168.16.3/24 fd00::3/64] [10.0.0.3]", "2 me [] []"]
    );
    assert_eq!(
        world.record.messages(),
        [
            "an address with network does not parse and is left out node=a address=10.0.0.1",
            "an address with network does not parse and is left out node=a address=::ffff:10.0.0.1/24",
            "an address with network does not parse and is left out node=a address=192.168.016.3/24",
            "a node's address in Kubernetes does not parse and is left out node=a address=fe80::1%eth0",
            "a node's pod CIDR does not parse and is taken for none node=a pod_cidr=10.1.3.9/33",
        ]
    );
    // A missing pod CIDR is valid, and addresses of other types are ignored.
    world.record.lines.clear();
    let mut node = kube(&("a", "node-a", ""));
    node.addresses[0].address_type = crate::bindings::trueup::kube::types::NodeAddressType::Hostname;
    node_sync.update(&mut world, Change::KubeNodePut(node)).unwrap();
    assert!(world.record.lines.is_empty(), "{:?}", world.record.lines);
}

#[test]
fn lists_come_back_without_duplicates_in_order() {
    let mut world = Simulation::default();
    let mut node_sync = synced(
        &mut world,
        &[(2, "me", "fd00::2/64 10.0.0.10/8 10.0.0.9/32 10.0.0.10/24 10.0.0.9/32")],
    );
    assert_eq!(
        lines(&node_sync.all_nodes()),
        ["2 me [10.0.0.9/32 10.0.0.10/8 10.0.0.10/24 fd00::2/64] []"]
    );
    let updates = node_sync
        .update(&mut world, put(3, "a", "10.0.0.1/24 10.0.0.1/8"))
        .unwrap();
    assert_eq!(listed(&updates), ["a: - -> 3 a [10.0.0.1/8 10.0.0.1/24] []"]);
    for same in ["10.0.0.1/8 10.0.0.1/24", "10.0.0.1/24 10.0.0.1/24 10.0.0.1/8"] {
        assert_eq!(node_sync.update(&mut world, put(3, "a", same)), Ok(vec![]));
    }
    // The prefix length is part of an address.
    let updates = node_sync.update(&mut world, put(3, "a", "10.0.0.1/24")).unwrap();
    assert_eq!(
        listed(&updates),
        ["a: 3 a [10.0.0.1/8 10.0.0.1/24] [] -> 3 a [10.0.0.1/24] []"]
    );
}

#[test]
fn an_id_that_moves_to_another_name_tells_of_both_by_name() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", ""), (3, "b", "")]);
    let updates = node_sync.update(&mut world, put(3, "a", "")).unwrap();
    assert_eq!(listed(&updates), ["a: - -> 3 a [] []", "b: 3 b [] [] -> -"]);
    // The other record of `c` counts once the first goes.
    node_sync.update(&mut world, put(4, "c", "10.0.0.4/8")).unwrap();
    assert_eq!(node_sync.update(&mut world, put(5, "c", "10.0.0.5/8")), Ok(vec![]));
    let updates = node_sync.update(&mut world, put(4, "d", "")).unwrap();
    assert_eq!(
        listed(&updates),
        ["c: 4 c [10.0.0.4/8] [] -> 5 c [10.0.0.5/8] []", "d: - -> 4 d [] []"]
    );
}

#[test]
fn a_kube_change_of_a_node_without_id_is_kept_and_not_sent() {
    let mut world = Simulation::default();
    let mut node_sync = instance(CONFIG);
    let nodes = [
        ("a", "10.0.0.8", ""),
        ("a", "10.0.0.9", "10.1.1.77/24"),
        ("", "10.0.0.1", ""),
    ];
    node_sync.resync(&mut world, state(&[(2, "me", "")], &nodes)).unwrap();
    assert_eq!(lines(&node_sync.all_nodes()), ["2 me [] []"]);
    assert_eq!(
        node_sync.update(&mut world, put_kube("a", "10.0.0.9", "10.1.1.0/24")),
        Ok(vec![])
    );
    let updates = node_sync.update(&mut world, put(1, "a", "")).unwrap();
    assert_eq!(listed(&updates), ["a: - -> 1 a [] [10.0.0.9] 10.1.1.0/24"]);
    let updates = node_sync
        .update(&mut world, Change::KubeNodeDeleted("a".to_owned()))
        .unwrap();
    assert_eq!(listed(&updates), ["a: 1 a [] [10.0.0.9] 10.1.1.0/24 -> 1 a [] []"]);
}

#[test]
fn a_resync_forgets_what_it_does_not_name() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "10.0.0.2/8"), (3, "a", "")]);
    node_sync.update(&mut world, put_kube("a", "10.9.9.9", "")).unwrap();
    node_sync
        .resync(&mut world, state(&[(2, "me", "10.0.0.2/8"), (4, "b", "")], &[]))
        .unwrap();
    assert_eq!(lines(&node_sync.all_nodes()), ["4 b [] []", "2 me [10.0.0.2/8] []"]);
    assert_eq!(
        listed(&node_sync.update(&mut world, put(3, "a", "")).unwrap()),
        ["a: - -> 3 a [] []"]
    );
}

#[test]
fn before_the_first_resync_there_is_nothing_and_nothing_is_kept() {
    let mut world = Simulation::default();
    let mut node_sync = instance(CONFIG);
    for change in [
        put(3, "a", ""),
        put_kube("a", "10.0.0.3", ""),
        Change::VppNodeDeleted(0),
    ] {
        assert_eq!(node_sync.update(&mut world, change), Err(Error::NotSynced));
    }
    let published = node_sync.publish_node_ips(&mut world, &["x".to_owned()], IpVersion::Ipv4);
    assert_eq!(published, Err(Error::NotSynced));
    assert_eq!((node_sync.id, node_sync.all_nodes()), (0, vec![]));
    node_sync.resync(&mut world, state(&[(2, "me", "")], &[])).unwrap();
    assert_eq!(lines(&node_sync.all_nodes()), ["2 me [] []"]);
}

#[test]
fn the_nodes_are_counted_by_name_with_this_one() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", ""), (3, "a", ""), (4, "a", ""), (5, "b", "")]);
    world.record.expect_metric("nodesync_nodes", 3.0);
    node_sync.update(&mut world, Change::VppNodeDeleted(5)).unwrap();
    world.record.expect_metric("nodesync_nodes", 2.0);
    node_sync.update(&mut world, Change::VppNodeDeleted(3)).unwrap();
    world.record.expect_metric("nodesync_nodes", 2.0);
    assert_eq!(world.record.metric("nodesync_publish_failures_total"), None);
}

#[test]
fn the_addresses_of_old_records_count_when_one_is_adopted() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "")]);
    let value = r#"{"id":2,"name":"me","ip_addresses":["10.0.0.2/8","x"],"ip_address":"fd00::2/64"}"#;
    world.store.insert(OWN_KEY.to_owned(), value.to_owned());
    assert_eq!(node_sync.update(&mut world, Change::VppNodeDeleted(2)), Ok(vec![]));
    assert_eq!(line(&node_sync.all_nodes()[0]), "2 me [10.0.0.2/8 fd00::2/64] []");
    assert_eq!(world.store[OWN_KEY], value, "an adopted record is not written");
}

#[test]
fn the_records_of_a_name_that_is_no_ascii_are_written_as_json() {
    let mut world = Simulation::default();
    let mut node_sync = instance(r#"{"node_name": "knoten-ä\"1\""}"#);
    node_sync.resync(&mut world, state(&[], &[])).unwrap();
    let value = world.store.values().next().unwrap();
    assert_eq!(value, r#"{"id":1,"name":"knoten-ä\"1\""}"#);
    assert_eq!(record(&(1, "a", "")).ip_addresses, Vec::<String>::new());
}

#[test]
fn errors_of_the_database_have_these_words() {
    for (error, expected) in [
        (kv::Error::Unavailable("no leader".to_owned()), "unavailable: no leader"),
        (kv::Error::AccessDenied("role".to_owned()), "access denied: role"),
        (kv::Error::NotText("/k".to_owned()), "not text: /k"),
        (kv::Error::TooManyOperations(128), "too many operations: 128"),
        (kv::Error::Invalid("empty key".to_owned()), "invalid: empty key"),
    ] {
        assert_eq!(etcd::words(&error), expected);
    }
}
