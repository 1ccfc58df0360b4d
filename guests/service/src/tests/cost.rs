//! The cost of an event does not depend on the number of other services. The tests count instead of measuring time:
//! comparisons of ids (every index uses ids), and combined services.

use super::{allocation, endpoints, id, node, nothing, pod, service, synced};
use crate::bindings::exports::trueup::service::processor::{Event, State};
use crate::counting::{COMBINED, COMPARISONS};
use crate::simulated::Simulation;

/// `n` services, each with two backends, one of them on this node; every tenth has a node port.
fn cluster(n: usize) -> State {
    let near = |index: usize| format!("10.1.1.{}", index % 200);
    let of = |index: usize| {
        let far = format!("10.1.{}.{}@far", 2 + index / 250, index % 250);
        endpoints(
            &format!("s{index}"),
            &format!("{}@p{} {far}", near(index), index % 200),
            "http:8080",
        )
    };
    let port = |index: usize| {
        if index.is_multiple_of(10) {
            "http:80:30080"
        } else {
            "http:80"
        }
    };
    State {
        local_pods: (0..200)
            .map(|index| pod(&format!("p{index}"), &near(index), &format!("tap{index}")))
            .collect(),
        services: (0..n)
            .map(|index| service(&format!("s{index}"), "10.96.0.1", port(index)))
            .collect(),
        endpoints: (0..n).map(of).collect(),
        ..nothing()
    }
}

/// Events with the number of services that each combines, which is 0 if one half is missing.
fn events() -> Vec<(Event, u64)> {
    let other = endpoints("s7", "10.1.1.7@p7 10.1.200.1", "http:8080");
    vec![
        (Event::EndpointsPut(other), 1),
        (Event::ServicePut(service("s7", "10.96.0.9", "http:80")), 1),
        (Event::ServiceDeleted(id("s7")), 0),
        (Event::EndpointsDeleted(id("s7")), 0),
        (Event::ServicePut(service("new", "10.96.0.9", "http:80")), 0),
        (Event::PodAdded(pod("lone", "10.1.1.250", "tap-lone")), 0),
        (Event::PodDeleted(id("lone")), 0),
        // It touches only the one service that lists the address.
        (Event::RemotePodPut(pod("far-1", "10.1.2.1", "")), 0),
        (Event::IpAllocationPut(allocation("far-1", &["*x - 10.9.0.1"])), 1),
        (Event::RemotePodDeleted(id("far-1")), 1),
    ]
}

/// For each event the combined services, and the comparisons of ids.
fn costs(n: usize) -> Vec<(u64, u64)> {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, cluster(n));
    let mut costs = Vec::new();
    for (event, _) in events() {
        COMBINED.take();
        COMPARISONS.take();
        processor.update(&mut world, event).unwrap();
        costs.push((COMBINED.take(), COMPARISONS.take()));
    }
    costs
}

/// A search in a map of this size, at eleven keys a node, makes no more comparisons for each level.
const COMPARISONS_PER_LEVEL: u64 = 11;
/// How many maps and sets one event searches, several times each.
const LOOKUPS_MAX: u64 = 60;

#[test]
fn an_event_touches_only_what_it_names_with_any_number_of_services() {
    let combined: Vec<u64> = events().iter().map(|(_, combined)| *combined).collect();
    for (n, levels) in [(100, 3), (1000, 4), (5000, 5)] {
        let costs = costs(n);
        assert_eq!(
            costs.iter().map(|(combined, _)| *combined).collect::<Vec<_>>(),
            combined,
            "of {n}"
        );
        for ((event, _), (_, comparisons)) in events().iter().zip(&costs) {
            let most = COMPARISONS_PER_LEVEL * levels * LOOKUPS_MAX;
            assert!(
                *comparisons <= most,
                "{comparisons} comparisons of ids among {n} services: {event:?}"
            );
        }
    }
}

#[test]
fn a_services_own_pods_are_touched_and_no_others() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, cluster(2000));
    // A pod that 10 of 2000 services list: its interface changes, its services do not.
    COMBINED.take();
    processor
        .update(&mut world, Event::PodAdded(pod("p3", "10.1.1.3", "new")))
        .unwrap();
    assert_eq!(COMBINED.take(), 0);
    // Its redirection touches those 10.
    processor
        .update(&mut world, Event::IpAllocationPut(allocation("p3", &["*x - 10.9.0.1"])))
        .unwrap();
    assert_eq!(COMBINED.take(), 10);
    // Nodes touch no service: those with node ports are handed over unchanged.
    processor
        .update(&mut world, Event::Nodes(vec![node("a", &[], &["1.1.1.1"])]))
        .unwrap();
    assert_eq!(COMBINED.take(), 0);
    let call = world.questions.take_calls().pop().unwrap();
    assert_eq!(call["args"]["services"].as_array().unwrap().len(), 200);
}

#[test]
fn pending_services_are_all_that_later_events_carry_along() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, cluster(1000));
    let fault = serde_json::json!({"call": "renderer.update-service", "error": "no", "times": 3});
    world.questions.add_fault(&fault);
    for name in ["s1", "s2", "s3"] {
        COMBINED.take();
        processor
            .update(&mut world, Event::EndpointsPut(endpoints(name, "", "")))
            .unwrap_err();
        if name != "s3" {
            world.questions.clear_faults();
            world.questions.add_fault(&fault);
        }
    }
    world.questions.clear_faults();
    COMBINED.take();
    processor
        .update(&mut world, Event::ServiceDeleted(id("unknown")))
        .unwrap();
    assert_eq!(COMBINED.take(), 3);
    processor
        .update(&mut world, Event::ServiceDeleted(id("unknown")))
        .unwrap();
    assert_eq!(COMBINED.take(), 0);
}
