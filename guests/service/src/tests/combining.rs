//! The function of the inputs, beyond the scenario files.

use super::{allocation, context, endpoints, handed, id, nothing, owned, pod, service, subset, synced, update, web};
use crate::bindings::exports::trueup::service::processor::{Event, NodeContext, State};
use crate::bindings::trueup::kube::types::{EndpointSubset, Endpoints, Protocol, Service, ServicePort};
use crate::bindings::trueup::service::types::{ContivService, TrafficPolicy};
use crate::simulated::Simulation;

/// The one contiv-service of this service and these subsets, in the short form of [`backends`].
fn combined(service: Service, subsets: Vec<EndpointSubset>) -> ContivService {
    let endpoints = Endpoints {
        id: service.id.clone(),
        subsets,
    };
    let state = State {
        services: vec![service],
        endpoints: vec![endpoints],
        ..nothing()
    };
    handed(state).services.remove(0)
}

/// `port-name: ip:port`, with `l` for local and `h` for host network after each.
fn backends(service: &ContivService) -> Vec<String> {
    let ports = service.backends.iter().map(|port| {
        let backends = port.backends.iter().map(|backend| {
            let local = if backend.local { "l" } else { "" };
            let host = if backend.host_network { "h" } else { "" };
            format!(" {}:{}{local}{host}", backend.ip, backend.port)
        });
        format!("{}:{}", port.port_name, backends.collect::<String>())
    });
    ports.collect()
}

#[test]
fn of_two_ports_with_one_name_the_last_counts_and_all_protocols_are_kept() {
    let mut web = service("web", "10.96.0.1", "b:1 a:2 b:3:30003");
    web.ports[1].protocol = Protocol::Sctp;
    web.ports[2].protocol = Protocol::Udp;
    let service = combined(web, vec![]);
    let port = |name: &str, protocol, port, node_port| ServicePort {
        name: name.to_owned(),
        protocol,
        port,
        node_port,
    };
    let ports = service
        .ports
        .iter()
        .map(|p| port(&p.name, p.protocol, p.port, p.node_port));
    assert_eq!(
        ports.collect::<Vec<_>>(),
        [port("a", Protocol::Sctp, 2, 0), port("b", Protocol::Udp, 3, 30003)]
    );
    assert_eq!(backends(&service), ["a:", "b:"]);
}

#[test]
fn an_unnamed_port_is_the_one_with_the_empty_name() {
    let service = combined(
        service("web", "10.96.0.1", ":80 x:81"),
        vec![subset("10.1.1.3", ":8080 y:1 x:8081")],
    );
    assert_eq!(backends(&service), [": 10.1.1.3:8080l", "x: 10.1.1.3:8081l"]);
}

#[test]
fn a_backend_comes_once_in_order_of_number_from_all_subsets() {
    let subsets = vec![
        subset(
            "10.1.1.10 10.1.1.9 fd00::1 ::ffff:10.1.1.9",
            "http:8080 http:80 http:8080",
        ),
        subset("10.1.1.9 10.1.2.1", "http:8080"),
    ];
    let service = combined(service("web", "10.96.0.1", "http:80"), subsets);
    assert_eq!(
        backends(&service),
        ["http: 10.1.1.9:80l 10.1.1.9:8080l 10.1.1.10:80l 10.1.1.10:8080l 10.1.2.1:8080 fd00::1:80h fd00::1:8080h"]
    );
}

#[test]
fn where_an_address_is_goes_by_subnets_and_then_by_the_nodes_own() {
    let listed = "10.1.1.3 10.1.2.3 192.168.16.1 172.30.1.1 172.30.1.2 fd00::3";
    let place = |change: fn(&mut NodeContext)| {
        let mut context = context();
        change(&mut context);
        let state = State {
            context,
            services: vec![service("web", "10.96.0.1", "p:1")],
            endpoints: vec![endpoints("web", listed, "p:1")],
            ..nothing()
        };
        backends(&handed(state).services[0]).remove(0)
    };
    assert_eq!(
        place(|_| {}),
        "p: 10.1.1.3:1l 10.1.2.3:1 172.30.1.1:1lh 172.30.1.2:1h 192.168.16.1:1lh fd00::3:1h"
    );
    // Its own address counts only outside the pods' subnet; the subnet's host bits do not matter.
    assert_eq!(
        place(|context| {
            context.host_ips = owned(&["10.1.2.3", "::ffff:172.30.1.2", "x"]);
            context.pod_subnet_this_node = "10.1.1.77/24".to_owned();
        }),
        "p: 10.1.1.3:1l 10.1.2.3:1 172.30.1.1:1h 172.30.1.2:1lh 192.168.16.1:1lh fd00::3:1h"
    );
    // This node's subnet makes an address local although no node's subnet contains it.
    assert_eq!(
        place(|context| {
            context.pod_subnet_all_nodes = String::new();
            context.node_ip = String::new();
        }),
        "p: 10.1.1.3:1lh 10.1.2.3:1h 172.30.1.1:1lh 172.30.1.2:1h 192.168.16.1:1h fd00::3:1h"
    );
    assert_eq!(
        place(|context| context.pod_subnet_this_node = "10.1.1.0".to_owned()),
        "p: 10.1.1.3:1 10.1.2.3:1 172.30.1.1:1lh 172.30.1.2:1h 192.168.16.1:1lh fd00::3:1h"
    );
}

#[test]
fn an_external_name_is_no_service_and_a_headless_service_is_one() {
    let mut world = Simulation::default();
    let mut web = service("web", "None", "http:80");
    let state = State {
        services: vec![web.clone()],
        endpoints: vec![endpoints("web", "10.1.1.3", "http:80")],
        ..nothing()
    };
    assert!(handed(state.clone()).services[0].cluster_ips.is_empty());
    let mut processor = synced(&mut world, state);
    web.service_type = "ExternalName".to_owned();
    assert_eq!(
        update(&mut processor, &mut world, Event::ServicePut(web.clone())),
        ["delete default/web"]
    );
    world.record.expect_metric("service_services", 0.0);
    web.service_type = "externalname".to_owned();
    assert_eq!(
        update(&mut processor, &mut world, Event::ServicePut(web)),
        ["add default/web"]
    );
    world.record.expect_metric("service_services", 1.0);
}

#[test]
fn policy_and_affinity_go_by_the_exact_words() {
    for (policy, affinity, expected) in [
        ("Local", "ClientIP", (true, 7)),
        ("local", "clientip", (false, 0)),
        ("", "", (false, 0)),
        ("Cluster", "None", (false, 0)),
    ] {
        let mut web = service("web", "", "");
        web.external_traffic_policy = policy.to_owned();
        web.session_affinity = affinity.to_owned();
        web.session_affinity_timeout_s = 7;
        let service = combined(web, vec![]);
        let is_local = service.traffic_policy == TrafficPolicy::NodeLocal;
        assert_eq!(
            (is_local, service.session_affinity_timeout_s),
            expected,
            "{policy} {affinity}"
        );
    }
}

#[test]
fn ids_order_by_namespace_then_name() {
    let names = ["b/a", "a/z", "a-b/c", "a/é", "a/b"];
    let state = State {
        services: names.iter().map(|name| service(name, "", "")).collect(),
        endpoints: names.iter().map(|name| endpoints(name, "", "")).collect(),
        ..nothing()
    };
    let ids = handed(state)
        .services
        .into_iter()
        .map(|service| service.id)
        .collect::<Vec<_>>();
    assert_eq!(ids, ["a/b", "a/z", "a/é", "a-b/c", "b/a"].map(id));
}

#[test]
fn of_two_redirects_of_an_address_the_first_pod_s_counts_until_it_goes() {
    let mut world = Simulation::default();
    let remote_pods = [("b", "10.1.2.3"), ("a", "10.1.2.3"), ("c", "10.1.2.4")];
    let state = State {
        remote_pods: remote_pods.map(|(name, ip)| pod(name, ip, "")).into(),
        ..web("10.96.0.1", "10.1.2.3@b 10.1.2.4")
    };
    let mut processor = synced(&mut world, state);
    let mut reach = |event: Event| -> String {
        processor.update(&mut world, event).unwrap();
        let calls = world.questions.take_calls();
        let services = calls.iter().filter(|call| call["call"] == "renderer.update-service");
        let new: Vec<ContivService> = services
            .map(|call| serde_json::from_value(call["args"]["new"].clone()).unwrap())
            .collect();
        new.iter().flat_map(backends).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        reach(Event::IpAllocationPut(allocation("b", &["*x - 10.2.0.2"]))),
        "p: 10.1.2.4:1 10.2.0.2:1h"
    );
    assert_eq!(
        reach(Event::IpAllocationPut(allocation("a", &["*x - 10.2.0.1/24"]))),
        "p: 10.1.2.4:1 10.2.0.1:1h"
    );
    // A change of the second one has no effect, and neither has one without an address.
    assert_eq!(reach(Event::IpAllocationPut(allocation("b", &["*x - 10.2.0.9"]))), "");
    assert_eq!(
        reach(Event::IpAllocationPut(allocation(
            "c",
            &["*x - nowhere", "y - 10.9.9.9"]
        ))),
        ""
    );
    assert_eq!(reach(Event::RemotePodDeleted(id("a"))), "p: 10.1.2.4:1 10.2.0.9:1h");
    // The last one counts, even if it has no address to redirect to.
    assert_eq!(
        reach(Event::IpAllocationPut(allocation(
            "b",
            &["*x - 10.2.0.9", "*y - nowhere"]
        ))),
        "p: 10.1.2.3:1 10.1.2.4:1"
    );
    // Two addresses with the same effective address are one backend.
    assert_eq!(
        reach(Event::IpAllocationPut(allocation("b", &["*x - 10.1.2.4/32"]))),
        "p: 10.1.2.4:1"
    );
    // The pod's address moves, and its redirection with it.
    assert_eq!(
        reach(Event::RemotePodPut(pod("b", "10.1.2.4", ""))),
        "p: 10.1.2.3:1 10.1.2.4:1"
    );
}

#[test]
fn a_redirected_address_may_become_local_and_its_pod_a_backend() {
    let mut world = Simulation::default();
    let state = State {
        local_pods: vec![pod("a", "10.9.0.3", "tap-a")],
        ..web("10.96.0.1", "10.9.0.3@a")
    };
    let mut processor = synced(&mut world, state);
    assert_eq!(
        update(
            &mut processor,
            &mut world,
            Event::IpAllocationPut(allocation("a", &["*memif other 10.1.1.9/24"]))
        ),
        ["update default/web", "backends [bvi tap] [bvi memif tap]"]
    );
    // Without a name of its own, it has the interface of its pod.
    assert_eq!(
        update(
            &mut processor,
            &mut world,
            Event::IpAllocationPut(allocation("a", &["* other 10.1.1.9/24"]))
        ),
        ["backends [bvi memif tap] [bvi tap tap-a]"]
    );
    assert_eq!(
        update(&mut processor, &mut world, Event::PodDeleted(id("a"))),
        [
            "update default/web",
            "backends [bvi tap tap-a] [bvi tap]",
            "frontends [GbE bvi tap tap-a] [GbE bvi tap]"
        ]
    );
}
