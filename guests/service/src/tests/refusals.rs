//! Renderers that refuse: the answers, what the guest retries, and what it does not.

use serde_json::json;

use super::{calls, endpoints, id, instance, node, nothing, pod, refuse_all, service, synced, unready, update};
use crate::bindings::exports::trueup::service::processor::{Event, State};
use crate::processor::Processor;
use crate::simulated::Simulation;

fn refuse(world: &mut Simulation, call: &str, error: &str) {
    world.questions.add_fault(&json!({"call": call, "error": error}));
}

fn one_service() -> State {
    State {
        services: vec![service("web", "10.96.0.1", "http:80:30080")],
        endpoints: vec![endpoints("web", "10.1.1.3@p", "http:8080")],
        ..nothing()
    }
}

fn nothing_happens(processor: &mut Processor, world: &mut Simulation) -> Vec<String> {
    update(processor, world, Event::ServiceDeleted(id("unknown")))
}

#[test]
fn the_first_error_is_the_answer_and_all_that_was_refused_is_tried_again() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, one_service());
    for (call, error) in [
        ("renderer.update-local-backend-ifs", "backends"),
        ("renderer.update-local-frontend-ifs", "frontends"),
    ] {
        refuse(&mut world, call, error);
    }
    let added = Event::PodAdded(pod("p", "10.1.1.3", "tap-p"));
    assert_eq!(processor.update(&mut world, added), Err("frontends".to_owned()));
    let expected = [
        "frontends [GbE bvi tap] [GbE bvi tap tap-p]",
        "backends [bvi tap] [bvi tap tap-p]",
    ];
    assert_eq!(calls(&mut world), expected);
    assert_eq!(
        world.record.messages(),
        [
            "a renderer refused; the next event tries again call=update-local-frontend-ifs error=frontends",
            "a renderer refused; the next event tries again call=update-local-backend-ifs error=backends",
        ]
    );
    assert_eq!(nothing_happens(&mut processor, &mut world), expected);
    assert!(nothing_happens(&mut processor, &mut world).is_empty());
}

#[test]
fn what_went_back_meanwhile_is_not_called_for() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, one_service());
    let refused = "update-service update-local-frontend-ifs update-node-port-services";
    refuse_all(&mut world, refused);
    let mut refused = |event: Event| {
        assert_eq!(processor.update(&mut world, event), Err("no".to_owned()));
        calls(&mut world)
    };
    let frontends = "frontends [GbE bvi tap] [GbE bvi tap tap-x]";
    let (service, nodes) = ("update default/web", "nodes [1.1.1.1] [default/web]");
    assert_eq!(refused(Event::EndpointsPut(endpoints("web", "", ""))), [service]);
    assert_eq!(refused(Event::PodAdded(pod("x", "", "tap-x"))), [frontends, service]);
    assert_eq!(
        refused(Event::Nodes(vec![node("a", &["1.1.1.1/8"], &[])])),
        [frontends, service, nodes]
    );
    // One after the other is restored.
    assert_eq!(refused(Event::Nodes(vec![])), [frontends, service]);
    assert_eq!(refused(Event::PodDeleted(id("x"))), [service]);
    let back = Event::EndpointsPut(endpoints("web", "10.1.1.3@p", "http:8080"));
    assert!(update(&mut processor, &mut world, back).is_empty());
}

#[test]
fn old_is_what_was_acknowledged_however_often_new_was_refused() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, one_service());
    let mut old = Vec::new();
    for (address, is_refused) in [
        ("10.1.1.4", true),
        ("10.1.1.5", true),
        ("10.1.1.6", false),
        ("10.1.1.7", false),
    ] {
        if is_refused {
            refuse(&mut world, "renderer.update-service", "no");
        }
        let event = Event::EndpointsPut(endpoints("web", address, "http:8080"));
        assert_eq!(processor.update(&mut world, event).is_err(), is_refused);
        let call = world.questions.take_calls().remove(0);
        old.push(
            call["args"]["old"]["backends"][0]["backends"][0]["ip"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert_eq!(old, ["10.1.1.3", "10.1.1.3", "10.1.1.3", "10.1.1.6"]);
}

#[test]
fn a_service_whose_addition_was_refused_and_that_went_was_never_there() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, nothing());
    processor
        .update(
            &mut world,
            Event::ServicePut(service("web", "10.96.0.1", "http:80:30080")),
        )
        .unwrap();
    refuse(&mut world, "renderer.add-service", "full");
    let put = Event::EndpointsPut(endpoints("web", "", ""));
    assert_eq!(processor.update(&mut world, put), Err("full".to_owned()));
    assert_eq!(
        world.record.messages(),
        ["a renderer refused; the next event tries again call=add-service namespace=default name=web error=full"]
    );
    calls(&mut world);
    // Nor is it among the acknowledged ones with node ports.
    refuse(&mut world, "renderer.add-service", "full");
    let nodes = Event::Nodes(vec![node("a", &[], &["1.1.1.1"])]);
    assert_eq!(processor.update(&mut world, nodes), Err("full".to_owned()));
    assert_eq!(calls(&mut world), ["add default/web", "nodes [1.1.1.1] []"]);
    assert!(update(&mut processor, &mut world, Event::ServiceDeleted(id("web"))).is_empty());
}

#[test]
fn an_undeleted_service_still_counts_for_the_renderers_alone() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, one_service());
    refuse(&mut world, "renderer.delete-service", "busy");
    assert_eq!(
        processor.update(&mut world, Event::ServiceDeleted(id("web"))),
        Err("busy".to_owned())
    );
    world.record.expect_metric("service_services", 0.0);
    refuse(&mut world, "renderer.delete-service", "busy");
    calls(&mut world);
    let nodes = Event::Nodes(vec![node("a", &[], &["1.1.1.1"])]);
    assert_eq!(processor.update(&mut world, nodes), Err("busy".to_owned()));
    assert_eq!(
        calls(&mut world),
        ["delete default/web", "nodes [1.1.1.1] [default/web]"]
    );
    assert_eq!(nothing_happens(&mut processor, &mut world), ["delete default/web"]);
}

#[test]
fn a_refused_resync_makes_every_call_a_resync_until_one_succeeds() {
    let (mut processor, mut world) = unready("not ready", 3);
    let not_ready = Err("not ready".to_owned());
    assert_eq!(processor.resync(&mut world, one_service()), not_ready);
    world.record.expect_metric("service_services", 1.0);
    let more = Event::ServicePut(service("more", "", ""));
    assert_eq!(processor.update(&mut world, more), not_ready);
    processor.revert(&mut world, id("p"));
    assert_eq!(calls(&mut world), vec!["resync [default/web]"; 3]);
    assert_eq!(
        world.record.messages().last().copied().unwrap(),
        "a renderer refused; the next event tries again call=resync error=not ready"
    );
    let endpoints = Event::EndpointsPut(endpoints("more", "10.1.1.3", ""));
    assert_eq!(
        update(&mut processor, &mut world, endpoints),
        ["resync [default/more default/web]"]
    );
    assert!(nothing_happens(&mut processor, &mut world).is_empty());
}

#[test]
fn a_resync_takes_the_place_of_what_was_pending() {
    let mut world = Simulation::default();
    let mut processor = synced(&mut world, one_service());
    for call in ["renderer.update-service", "renderer.update-local-frontend-ifs"] {
        refuse(&mut world, call, "no");
    }
    let _ = processor.update(&mut world, Event::EndpointsPut(endpoints("web", "", "")));
    let _ = processor.update(&mut world, Event::PodAdded(pod("x", "", "tap-x")));
    calls(&mut world);
    processor.resync(&mut world, one_service()).unwrap();
    assert_eq!(calls(&mut world), ["resync [default/web]"]);
    assert!(nothing_happens(&mut processor, &mut world).is_empty());
}

#[test]
fn before_the_first_resync_nothing_is_kept() {
    let mut world = Simulation::default();
    let mut processor = instance();
    let event = Event::ServicePut(service("web", "", ""));
    assert_eq!(processor.update(&mut world, event), Err("no resync yet".to_owned()));
    processor.revert(&mut world, id("p"));
    assert_eq!(world.record.metric("service_services"), None);
    let with_endpoints = State {
        endpoints: vec![endpoints("web", "", "")],
        ..nothing()
    };
    processor.resync(&mut world, with_endpoints).unwrap();
    assert_eq!(calls(&mut world), ["resync []"]);
}
