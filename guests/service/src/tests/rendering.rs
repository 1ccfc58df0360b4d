//! Interfaces, allocations and node addresses: which of them renderers get, and in which order.

use trueup_guest::Guest as _;

use super::{allocation, calls, endpoints, handed, id, node, nothing, pod, service, synced, update};
use crate::bindings::exports::trueup::service::processor::{Event, State};
use crate::processor::Processor;
use crate::simulated::Simulation;

#[test]
fn which_interfaces_of_an_allocation_clients_sit_behind() {
    let config = r#"{"default_pod_network": "pods"}"#;
    let state = State {
        local_pods: vec![pod("a", "10.1.1.3", "tap-a"), pod("host", "192.168.16.1", "")],
        remote_pods: vec![pod("far", "10.1.2.3", "tap-far")],
        ip_allocations: vec![
            allocation(
                "a",
                &[
                    "x1 pods 1.1.1.1",
                    "x2 - 1.1.1.2",
                    "x3 default 1.1.1.3",
                    "- pods 1.1.1.4",
                    "tap-a - -",
                ],
            ),
            allocation("far", &["x4 pods 1.1.1.5"]),
            allocation("host", &["x5 pods 1.1.1.6"]),
            allocation("unknown", &["x6 pods 1.1.1.7"]),
        ],
        ..nothing()
    };
    let mut processor = Processor::init(config).unwrap();
    let mut world = Simulation::default();
    processor.resync(&mut world, state.clone()).unwrap();
    let calls = world.questions.take_calls();
    assert_eq!(
        calls[0]["args"]["event"]["frontend_ifs"],
        serde_json::json!(["GbE", "bvi", "tap", "tap-a", "x1", "x2", "x5"])
    );
    assert_eq!(handed(state).frontend_ifs, ["GbE", "bvi", "tap", "tap-a", "x2", "x3"]);
}

#[test]
fn an_interface_that_two_use_stays_until_both_are_gone() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, nothing());
    assert_eq!(
        update(
            &mut processor,
            &mut world,
            Event::PodAdded(pod("a", "10.1.1.3", "shared"))
        ),
        ["frontends [GbE bvi tap] [GbE bvi shared tap]"]
    );
    assert!(
        update(
            &mut processor,
            &mut world,
            Event::PodAdded(pod("b", "10.1.1.4", "shared"))
        )
        .is_empty()
    );
    // The node's own interface stays whatever pods do.
    assert!(update(&mut processor, &mut world, Event::PodAdded(pod("c", "10.1.1.5", "GbE"))).is_empty());
    assert!(update(&mut processor, &mut world, Event::PodDeleted(id("c"))).is_empty());
    assert!(update(&mut processor, &mut world, Event::PodDeleted(id("a"))).is_empty());
    // A pod that is put again with another interface releases the first.
    assert_eq!(
        update(&mut processor, &mut world, Event::PodAdded(pod("b", "10.1.1.4", "new"))),
        ["frontends [GbE bvi shared tap] [GbE bvi new tap]"]
    );
}

#[test]
fn an_allocation_goes_with_the_last_pod_of_its_name() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, nothing());
    for event in [
        Event::PodAdded(pod("a", "10.1.1.3", "tap-a")),
        Event::RemotePodPut(pod("a", "10.1.2.3", "")),
        Event::IpAllocationPut(allocation("a", &["x - 1.1.1.1"])),
        Event::PodDeleted(id("a")),
    ] {
        processor.update(&mut world, event).unwrap();
    }
    world.questions.take_calls();
    // It still exists, because of the remote pod; then it goes.
    assert_eq!(
        update(
            &mut processor,
            &mut world,
            Event::PodAdded(pod("a", "10.1.1.3", "tap-a"))
        ),
        ["frontends [GbE bvi tap] [GbE bvi tap tap-a x]"]
    );
    assert!(update(&mut processor, &mut world, Event::RemotePodDeleted(id("a"))).is_empty());
    processor.update(&mut world, Event::PodDeleted(id("a"))).unwrap();
    calls(&mut world);
    assert_eq!(
        update(
            &mut processor,
            &mut world,
            Event::PodAdded(pod("a", "10.1.1.3", "tap-a"))
        ),
        ["frontends [GbE bvi tap] [GbE bvi tap tap-a]"]
    );
    // An allocation that came before its pod goes with a pod of that name, even an unknown one.
    processor
        .update(&mut world, Event::IpAllocationPut(allocation("b", &["y - 1.1.1.1"])))
        .unwrap();
    processor.update(&mut world, Event::PodDeleted(id("b"))).unwrap();
    assert_eq!(
        update(
            &mut processor,
            &mut world,
            Event::PodAdded(pod("b", "10.1.1.4", "tap-b"))
        ),
        ["frontends [GbE bvi tap tap-a] [GbE bvi tap tap-a tap-b]"]
    );
}

#[test]
fn node_ips_are_those_of_all_nodes_once_in_order() {
    let mut world = Simulation::default();
    let state = State {
        services: vec![
            service("np", "", "a:1:30001"),
            service("plain", "", "a:1"),
            service("alone", "", "a:1:2"),
        ],
        endpoints: vec![endpoints("np", "", ""), endpoints("plain", "", "")],
        ..nothing()
    };
    let mut processor = synced(&mut world, state);
    let nodes = vec![
        node(
            "b",
            &["192.168.16.10/24", "fd00::1/64", "192.168.16.9"],
            &["::ffff:172.30.1.1"],
        ),
        node("a", &["bad/24"], &["172.30.1.1", "192.168.16.9"]),
    ];
    assert_eq!(
        update(&mut processor, &mut world, Event::Nodes(nodes.clone())),
        ["nodes [172.30.1.1 192.168.16.9 192.168.16.10 fd00::1] [default/np]"]
    );
    let turned = nodes.into_iter().rev().collect();
    assert!(update(&mut processor, &mut world, Event::Nodes(turned)).is_empty());
    // Even if no service has a node port.
    calls(&mut world);
    processor.update(&mut world, Event::ServiceDeleted(id("np"))).unwrap();
    calls(&mut world);
    assert_eq!(
        update(&mut processor, &mut world, Event::Nodes(vec![])),
        ["nodes [] []"]
    );
}

#[test]
fn the_calls_of_one_event_come_in_this_order() {
    let mut world = Simulation::default();
    let mut processor = synced(
        &mut world,
        State {
            services: vec![service("b", "", "p:1"), service("a", "", "p:1")],
            endpoints: vec![
                endpoints("a", "10.1.2.3@x 10.1.1.3@y", "p:1"),
                endpoints("b", "10.1.2.3", "p:1"),
            ],
            ip_allocations: vec![allocation("y", &["*z - 10.1.1.4"])],
            ..nothing()
        },
    );
    assert_eq!(
        update(
            &mut processor,
            &mut world,
            Event::PodAdded(pod("y", "10.1.2.3", "tap-y"))
        ),
        [
            "frontends [GbE bvi tap] [GbE bvi tap tap-y z]",
            "update default/a",
            "update default/b",
            "backends [bvi tap] [bvi tap z]"
        ]
    );
    processor.revert(&mut world, id("y"));
    assert_eq!(
        calls(&mut world),
        [
            "update default/a",
            "update default/b",
            "backends [bvi tap z] [bvi tap]",
            "frontends [GbE bvi tap tap-y z] [GbE bvi tap]"
        ]
    );
}
