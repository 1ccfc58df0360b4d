//! Snapshot and restore.

use super::{CONFIG, chains, elements, id, instance, service, synced, with_port};
use crate::simulated::Simulation;
use trueup_guest::Guest as _;

#[test]
fn a_restart_with_state_changes_only_what_differs() {
    let (mut renderer, mut world) = synced(CONFIG);
    let a = with_port(service("a", "10.96.0.1", "20.0.0.1"), "http", 80, 0, "10.1.1.3#80");
    let b = with_port(service("b", "10.96.0.2", "20.0.0.1"), "http", 80, 0, "10.1.1.3#80");
    renderer.add_service(&mut world, a.clone()).unwrap();
    renderer.add_service(&mut world, b).unwrap();
    let snapshot = renderer.snapshot();
    let mut renderer = instance(CONFIG);
    renderer.restore(&mut world, &snapshot).unwrap();
    assert_eq!(renderer.snapshot(), snapshot);
    world.take_asked();
    renderer.add_service(&mut world, a).unwrap();
    assert_eq!(world.take_asked(), [] as [&str; 0]);
    renderer.delete_service(&mut world, id("a")).unwrap();
    assert_eq!(
        elements(&world, "ip"),
        [
            "service-ips 10.96.0.2 tcp 80: svc/default/b/http",
            "service-ips 20.0.0.1 tcp 80: ext/default/b/http"
        ]
    );
    assert_eq!(chains(&world, "ip").len(), 3);
}

#[test]
fn before_the_first_resync_there_is_nothing_to_carry() {
    let (mut renderer, mut world) = (instance(CONFIG), Simulation::default());
    let snapshot = renderer.snapshot();
    assert!(snapshot.starts_with(r#"{"version":1,"#), "{snapshot}");
    renderer.restore(&mut world, &snapshot).unwrap();
    let error = renderer.add_service(&mut world, service("a", "", "")).unwrap_err();
    assert_eq!(error, "no resync yet");
}

#[test]
fn other_settings_need_a_resync_since_the_tables_are_as_the_old_ones_say() {
    let (mut renderer, mut world) = synced(CONFIG);
    let web = with_port(service("web", "10.96.0.1", ""), "http", 80, 0, "10.1.1.3#80");
    renderer.add_service(&mut world, web.clone()).unwrap();
    let mut new = instance(r#"{"families": ["ip"], "pod_subnets": ["10.1.0.0/16"], "masquerade_mark": 1}"#);
    new.restore(&mut world, &renderer.snapshot()).unwrap();
    assert_eq!(world.record.lines.len(), 1);
    assert!(world.record.messages()[0].starts_with("the snapshot was taken under other settings"));
    assert_eq!(
        new.add_service(&mut world, web.clone()),
        Err("no resync yet".to_owned())
    );
    new.resync(&mut world, vec![web]).unwrap();
    assert_eq!(elements(&world, "ip").len(), 1);
}

#[test]
fn a_snapshot_that_cannot_be_read_changes_nothing() {
    let (mut renderer, mut world) = synced(CONFIG);
    let before = renderer.snapshot();
    super::refusing::refuses(r#"{"version": 1}"#, |snapshot| renderer.restore(&mut world, snapshot));
    assert_eq!(renderer.snapshot(), before);
}
