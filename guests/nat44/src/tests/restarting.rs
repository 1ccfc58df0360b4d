//! Snapshot and restore.

use super::{CONFIG, event, id, instance, list, service, synced};
use crate::simulated::{Asked, Simulation};
use trueup_guest::Guest as _;
use trueup_guest::bindings::trueup::etcd::kv::Error;

#[test]
fn a_restart_with_state_writes_only_what_differs() {
    let (mut renderer, mut world) = (instance(CONFIG), Simulation::default());
    let mut told = event(vec![service("a", "", ""), service("b", "", "")]);
    told.node_ips = list("192.0.2.1");
    told.frontend_ifs = list("tap0");
    told.backend_ifs = list("tap1");
    renderer.resync(&mut world, told).unwrap();
    world.fail("kv.commit", Error::Unavailable("no leader".to_owned()));
    renderer.delete_service(&mut world, &id("b")).unwrap_err();
    let snapshot = renderer.snapshot();
    let mut renderer = instance(CONFIG);
    renderer.restore(&snapshot).unwrap();
    assert_eq!(renderer.snapshot(), snapshot);
    world.take_asked();
    renderer.add_service(&mut world, &service("a", "", "")).unwrap();
    renderer.delete_service(&mut world, &id("c")).unwrap();
    renderer.update_local_frontend_ifs(&mut world, list("tap0")).unwrap();
    renderer.update_local_backend_ifs(&mut world, list("tap1")).unwrap();
    assert_eq!(world.take_asked(), []);
    // The result of this one is unknown.
    renderer.delete_service(&mut world, &id("b")).unwrap();
    assert_eq!(world.take_asked().len(), 1);
    let node = super::with_port(service("a", "", ""), "http", 0, 30080, "10.1.1.3#80");
    renderer.add_service(&mut world, &node).unwrap();
    assert!(super::dnat(&world, "a").contains("192.0.2.1"));
}

#[test]
fn another_agent_knows_nothing_of_its_keys() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer.update_local_frontend_ifs(&mut world, list("tap0")).unwrap();
    let other = r#"{"agent_label": "b", "nat_loopback_ip": "10.1.1.254"}"#;
    let mut other = instance(other);
    other.restore(&renderer.snapshot()).unwrap();
    world.take_asked();
    other.delete_service(&mut world, &id("web")).unwrap();
    other.update_local_backend_ifs(&mut world, Vec::new()).unwrap();
    let asked = world.take_asked();
    assert!(
        matches!(asked.as_slice(), [Asked::Commit(_), Asked::Commit(_)]),
        "{asked:?}"
    );
    assert!(world.etcd["/vnf-agent/b/config/vpp/nat/v2/nat44-global"].contains("tap0"));
}

#[test]
fn a_snapshot_that_cannot_be_read_changes_nothing() {
    let (mut renderer, _) = synced(CONFIG);
    let before = renderer.snapshot();
    assert!(before.starts_with(r#"{"version":1,"#), "{before}");
    super::refusing::refuses(r#"{"version": 1}"#, |snapshot| renderer.restore(snapshot));
    let odd = before.replace(r#""node_ips":[]"#, r#""node_ips":["x"]"#);
    assert_eq!(
        renderer.restore(&odd),
        Err("snapshot: \"x\" is no address, may be what a snapshot of version 1 holds".to_owned())
    );
    assert_eq!(renderer.snapshot(), before);
}
