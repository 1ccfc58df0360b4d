//! Snapshot and restore.

use trueup_guest::Guest as _;

use super::{
    allocation, calls, endpoints, id, instance, node, nothing, pod, refuse_all, service, synced, unready, update,
};
use crate::bindings::exports::trueup::service::processor::{Event, State};
use crate::processor::Processor;
use crate::simulated::Simulation;

fn some_state() -> State {
    State {
        nodes: vec![node("a", &["192.168.16.1/24"], &["fd00::1"])],
        local_pods: vec![pod("p", "10.1.1.3", "tap-p"), pod("host", "", "")],
        remote_pods: vec![pod("far", "10.1.2.3", "")],
        services: vec![service("web", "10.96.0.1", "http:80:30080 :1"), service("half", "", "")],
        endpoints: vec![
            endpoints("web", "10.1.1.3@p 10.1.2.3@far fd00::9", "http:8080"),
            endpoints("other", "", ""),
        ],
        ip_allocations: vec![
            allocation("far", &["*x - 10.2.0.1"]),
            allocation("late", &["y pods 10.2.0.2"]),
        ],
        ..nothing()
    }
}

fn carried(old: &Processor, config: &str) -> (Processor, Simulation) {
    let mut world = Simulation::default();
    let mut new = Processor::init(config).unwrap();
    new.restore(&mut world, &old.snapshot()).unwrap();
    (new, world)
}

#[test]
fn everything_is_carried_and_nothing_is_called() {
    let processor = synced(&mut Simulation::default(), some_state());
    let (mut new, mut world) = carried(&processor, "{}");
    assert!(calls(&mut world).is_empty());
    assert_eq!(new.snapshot(), processor.snapshot());
    world.record.expect_metric("service_services", 1.0);
    assert!(update(&mut new, &mut world, Event::ServiceDeleted(id("unknown"))).is_empty());
    // The halves, the allocations and the indexes exist.
    assert_eq!(
        update(
            &mut new,
            &mut world,
            Event::EndpointsPut(endpoints("half", "10.1.1.3@p", "http:1"))
        ),
        ["add default/half"]
    );
    assert_eq!(
        update(&mut new, &mut world, Event::RemotePodDeleted(id("far"))),
        ["update default/web"]
    );
    assert_eq!(
        update(&mut new, &mut world, Event::PodAdded(pod("p", "10.1.1.3", "new"))),
        [
            "frontends [GbE bvi tap tap-p] [GbE bvi new tap]",
            "backends [bvi tap tap-p] [bvi new tap]"
        ]
    );
    assert_eq!(
        update(&mut new, &mut world, Event::Nodes(vec![])),
        ["nodes [] [default/web]"]
    );
}

#[test]
fn what_was_refused_is_carried() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, some_state());
    refuse_all(&mut world, "update-service delete-service update-node-port-services");
    refuse_all(&mut world, "update-local-frontend-ifs update-local-backend-ifs");
    processor
        .update(&mut world, Event::EndpointsPut(endpoints("half", "", "")))
        .unwrap();
    for event in [
        Event::ServiceDeleted(id("half")),
        Event::EndpointsPut(endpoints("web", "10.1.2.3", "http:8080")),
        Event::Nodes(vec![]),
        Event::PodDeleted(id("p")),
    ] {
        processor.update(&mut world, event).unwrap_err();
    }
    let (mut new, mut world) = carried(&processor, "{}");
    assert_eq!(new.snapshot(), processor.snapshot());
    assert_eq!(
        update(&mut new, &mut world, Event::ServiceDeleted(id("unknown"))),
        [
            "frontends [GbE bvi tap tap-p] [GbE bvi tap]",
            "delete default/half",
            "update default/web",
            "nodes [] [default/web]",
            "backends [bvi tap tap-p] [bvi tap]"
        ]
    );
}

#[test]
fn a_refused_resync_is_carried() {
    let (mut processor, mut world) = unready("no", 1);
    processor.resync(&mut world, some_state()).unwrap_err();
    let (mut new, mut world) = carried(&processor, "{}");
    world.record.expect_metric("service_services", 1.0);
    assert_eq!(
        update(&mut new, &mut world, Event::ServiceDeleted(id("web"))),
        ["resync []"]
    );
    world.record.expect_metric("service_services", 0.0);
}

#[test]
fn an_instance_without_resync_is_carried_as_such() {
    let (mut new, mut world) = carried(&instance(), "{}");
    let event = Event::ServiceDeleted(id("web"));
    assert_eq!(new.update(&mut world, event), Err("no resync yet".to_owned()));
    assert_eq!(world.record.metric("service_services"), None);
}

#[test]
fn effects_of_new_settings_are_called_for_with_the_next_event() {
    let state = State {
        local_pods: vec![pod("p", "10.1.1.3", "tap-p")],
        ip_allocations: vec![allocation("p", &["x pods 10.2.0.1", "y default 10.2.0.2"])],
        ..nothing()
    };
    let processor = synced(&mut Simulation::default(), state);
    let (mut new, mut world) = carried(&processor, r#"{"default_pod_network": "pods"}"#);
    assert_eq!(
        update(&mut new, &mut world, Event::Nodes(vec![])),
        ["frontends [GbE bvi tap tap-p y] [GbE bvi tap tap-p x]"]
    );
}

#[test]
fn a_snapshot_that_cannot_be_read_changes_nothing() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, some_state());
    let before = processor.snapshot();
    let wrong_address = before.replace("10.1.1.3", "10.1.1.300");
    let error = r#"snapshot: "10.1.1.300" is no address, may be what a snapshot of version 1 holds"#;
    assert_eq!(processor.restore(&mut world, &wrong_address), Err(error.to_owned()));
    let incomplete = r#"{"version": 1, "known": {}}"#;
    super::refusing::refuses(incomplete, |snapshot| processor.restore(&mut world, snapshot));
    assert_eq!(processor.snapshot(), before);
}

#[test]
fn the_version_is_at_the_top() {
    assert!(instance().snapshot().starts_with(r#"{"version":1,"#));
}
