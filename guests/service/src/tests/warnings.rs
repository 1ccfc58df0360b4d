//! What the guest leaves out, and its warnings.

use super::{allocation, endpoints, node, nothing, owned, pod, service, synced};
use crate::bindings::exports::trueup::service::processor::{Event, State};
use crate::simulated::Simulation;

#[test]
fn what_does_not_parse_is_named_once_with_whose_it_is() {
    let mut world = Simulation::default();
    let mut web = service("ns/web", "bad", "");
    web.external_ips = owned(&["1.1.1.1", "2.2.2.2/32"]);
    // Only that type uses the names of a load balancer.
    web.lb_ingress_ips = owned(&["lb.example.com"]);
    let mut state = State {
        nodes: vec![node("n", &["bad/24"], &["10.0.0.1/8"])],
        local_pods: vec![pod("p", "10.1.1.3/32", ""), pod("pending", "", "")],
        remote_pods: vec![pod("q", "10.1.2.03", "")],
        endpoints: vec![endpoints("ns/web", "10.1.1.3 fe80::1%eth0", "")],
        services: vec![web],
        ip_allocations: vec![allocation("p", &["*x - nowhere/24", "y - not-looked-at"])],
        ..nothing()
    };
    state.context.node_ip = "192.168.16.1/24".to_owned();
    state.context.host_ips = owned(&["host"]);
    state.context.pod_subnet_all_nodes = "::ffff:10.1.0.0/112".to_owned();
    state.context.pod_subnet_this_node = String::new();
    let mut processor = synced(&mut world, state);
    assert_eq!(
        world.record.messages(),
        [
            "an address of this node does not parse and is left out address=host",
            "an address of this node does not parse and is left out address=192.168.16.1/24",
            "a pod subnet does not parse and contains nothing subnet=::ffff:10.1.0.0/112",
            "the address of a node does not parse and is left out node=n address=bad",
            "the address of a node does not parse and is left out node=n address=10.0.0.1/8",
            "the address of a pod does not parse and is left out namespace=default name=p address=10.1.1.3/32",
            "the address of a pod does not parse and is left out namespace=default name=q address=10.1.2.03",
            "the address of an endpoint does not parse and is left out namespace=ns name=web address=fe80::1%eth0",
            "a cluster IP does not parse and is left out namespace=ns name=web address=bad",
            "an external IP does not parse and is left out namespace=ns name=web address=2.2.2.2/32",
            "the address of a service endpoint does not parse and is left out namespace=default name=p address=nowhere",
        ]
    );
    // An event that does not carry it gives no second warning.
    world.record.lines.clear();
    processor
        .update(&mut world, Event::PodAdded(pod("p", "10.1.1.3", "")))
        .unwrap();
    let mut web = service("ns/web", "", "");
    web.service_type = "LoadBalancer".to_owned();
    web.lb_ingress_ips = owned(&["lb.example.com"]);
    processor.update(&mut world, Event::ServicePut(web)).unwrap();
    assert_eq!(
        world.record.messages(),
        ["an external IP does not parse and is left out namespace=ns name=web address=lb.example.com"]
    );
}

#[test]
fn an_id_that_is_given_twice_is_named_with_its_kind() {
    let mut world = Simulation::default();
    let twice = State {
        local_pods: vec![pod("p", "", ""), pod("p", "", "")],
        remote_pods: vec![pod("p", "", ""), pod("p", "", "")],
        endpoints: vec![endpoints("web", "", ""), endpoints("web", "", "")],
        services: vec![service("web", "", ""), service("web", "", "")],
        ip_allocations: vec![allocation("p", &[]), allocation("p", &[])],
        ..nothing()
    };
    synced(&mut world, twice);
    let line = |kind: &str, name: &str| {
        format!("an id is given twice: the last counts in={kind} namespace=default name={name}")
    };
    assert_eq!(
        world.record.messages(),
        [
            line("local pods", "p"),
            line("remote pods", "p"),
            line("endpoints", "web"),
            line("services", "web"),
            line("ip allocations", "p")
        ]
    );
}
