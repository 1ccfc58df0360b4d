//! Snapshot and restore.

use serde_json::json;
use trueup_guest::Guest as _;

use super::{CONFIG, instance, lines, put, put_kube, synced};
use crate::bindings::trueup::nodesync::types::IpVersion;
use crate::simulated::Simulation;

#[test]
fn everything_is_carried() {
    let mut world = Simulation::default();
    let records = [(2, "me", "10.0.0.2/8"), (3, "a", "fd00::3/64"), (4, "a", "")];
    let mut node_sync = synced(&mut world, &records);
    node_sync
        .update(&mut world, put_kube("a", "10.9.9.9 fd00::9", "10.1.3.0/24"))
        .unwrap();
    node_sync.update(&mut world, put_kube("no-id", "", "")).unwrap();
    let fault = json!({"call": "kv.put", "error": {"Unavailable": "down"}});
    world.questions.add_fault(&fault);
    let addresses = ["10.0.0.7/8".to_owned()];
    assert_eq!(
        node_sync.publish_node_ips(&mut world, &addresses, IpVersion::Ipv4),
        Ok(false)
    );

    let mut new = instance(CONFIG);
    let mut world = Simulation::default();
    new.restore(&mut world, &node_sync.snapshot()).unwrap();
    assert_eq!(new.snapshot(), node_sync.snapshot());
    assert_eq!(new.all_nodes(), node_sync.all_nodes());
    world.record.expect_metric("nodesync_nodes", 2.0);
    // It knows that the write failed, and the facts from Kubernetes about a node without id.
    assert_eq!(new.publish_node_ips(&mut world, &addresses, IpVersion::Ipv4), Ok(true));
    new.update(&mut world, put(9, "no-id", "")).unwrap();
    assert_eq!(
        lines(&new.all_nodes()),
        [
            "3 a [fd00::3/64] [10.9.9.9 fd00::9] 10.1.3.0/24",
            "2 me [10.0.0.7/8] []",
            "9 no-id [] []"
        ]
    );
}

#[test]
fn an_instance_without_id_is_carried_as_such() {
    let mut world = Simulation::default();
    let mut new = synced(&mut world, &[(2, "me", "")]);
    let mut other = Simulation::default();
    new.restore(&mut other, &instance(CONFIG).snapshot()).unwrap();
    assert_eq!((new.id, new.all_nodes()), (0, vec![]));
    assert_eq!(other.record.metric("nodesync_nodes"), None);
}

#[test]
fn a_snapshot_that_cannot_be_read_changes_nothing() {
    let mut world = Simulation::default();
    let mut node_sync = synced(&mut world, &[(2, "me", "10.0.0.2/8"), (3, "a", "")]);
    let before = node_sync.snapshot();
    let wrong_address = before.replace("10.0.0.2/8", "10.0.0.2/99");
    let error = r#"snapshot: "10.0.0.2/99" is no address, may be what a snapshot of version 1 holds"#;
    assert_eq!(node_sync.restore(&mut world, &wrong_address), Err(error.to_owned()));
    super::refusing::refuses(r#"{"version": 1}"#, |snapshot| node_sync.restore(&mut world, snapshot));
    let mut other = instance(r#"{"node_name": "other"}"#);
    assert_eq!(
        other.restore(&mut world, &before),
        Err("snapshot: is of node `me`, may be of node `other`, whose id it would take".to_owned())
    );
    assert_eq!((node_sync.snapshot(), other.id), (before, 0));
}

#[test]
fn the_version_is_at_the_top() {
    assert!(instance(CONFIG).snapshot().starts_with(r#"{"version":1,"#));
}
