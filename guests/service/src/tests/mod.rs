//! Whole calls against simulated renderers, rule by rule, and properties of any sequence of them.

#[path = "../../../nodesync/src/tests/cases.rs"]
pub(crate) mod cases;
mod combining;
mod cost;
mod laws;
mod model;
#[path = "../../../nodesync/src/tests/questions.rs"]
pub(crate) mod questions;
mod refusals;
#[path = "../../../nodesync/src/tests/refusing.rs"]
mod refusing;
mod rendering;
mod restarting;
mod warnings;

use crate::bindings::exports::trueup::service::processor::{
    CustomInterface, CustomIpAllocation, Event, LocalPod, NodeContext, State,
};
use crate::bindings::trueup::kube::types::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectId, Protocol, Service, ServicePort,
};
use crate::bindings::trueup::nodesync::types::Node;
use crate::bindings::trueup::service::types::ResyncEvent;
use crate::processor::Processor;
use crate::simulated::Simulation;
use trueup_guest::Guest as _;

/// A new instance with the default settings.
fn instance() -> Processor {
    Processor::init("{}").unwrap()
}

/// An instance after a resync with this.
fn synced(world: &mut Simulation, state: State) -> Processor {
    let mut processor = instance();
    processor.resync(world, state).unwrap();
    world.questions.take_calls();
    processor
}

/// `namespace/name`; without `/` in the namespace `default`.
fn id(text: &str) -> ObjectId {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    ObjectId {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// This node has the pod subnet 10.1.1.0/24 of 10.1.0.0/16, and the addresses 192.168.16.1 and 172.30.1.1.
fn context() -> NodeContext {
    NodeContext {
        node_ip: "192.168.16.1".to_owned(),
        host_ips: owned(&["172.30.1.1"]),
        pod_subnet_this_node: "10.1.1.0/24".to_owned(),
        pod_subnet_all_nodes: "10.1.0.0/16".to_owned(),
        main_interface: "GbE".to_owned(),
        other_interfaces: Vec::new(),
        vxlan_bvi_interface: "bvi".to_owned(),
        host_interconnect_interface: "tap".to_owned(),
    }
}

/// Only this node.
fn nothing() -> State {
    State {
        context: context(),
        nodes: Vec::new(),
        local_pods: Vec::new(),
        remote_pods: Vec::new(),
        endpoints: Vec::new(),
        services: Vec::new(),
        ip_allocations: Vec::new(),
    }
}

/// Ports as `name:port` or `name:port:node-port`, with blanks between them.
fn service(of: &str, cluster_ip: &str, ports: &str) -> Service {
    let port = |text: &str| {
        let mut parts = text.split(':');
        let name = parts.next().unwrap().to_owned();
        let mut number = || parts.next().map_or(0, |part| part.parse().unwrap());
        ServicePort {
            name,
            protocol: Protocol::Tcp,
            port: number(),
            node_port: number(),
        }
    };
    Service {
        id: id(of),
        service_type: "ClusterIP".to_owned(),
        cluster_ip: cluster_ip.to_owned(),
        external_ips: Vec::new(),
        lb_ingress_ips: Vec::new(),
        external_traffic_policy: "Cluster".to_owned(),
        session_affinity: "None".to_owned(),
        session_affinity_timeout_s: 0,
        ports: ports.split_whitespace().map(port).collect(),
    }
}

/// One subset: addresses as `ip` or `ip@pod`, ports as `name:port`, with blanks between them.
fn subset(addresses: &str, ports: &str) -> EndpointSubset {
    let address = |text: &str| {
        let (ip, pod) = text
            .split_once('@')
            .map_or((text, None), |(ip, pod)| (ip, Some(id(pod))));
        EndpointAddress {
            ip: ip.to_owned(),
            node_name: "node".to_owned(),
            target_pod: pod,
        }
    };
    let port = |text: &str| {
        let (name, number) = text.split_once(':').unwrap();
        EndpointPort {
            name: name.to_owned(),
            protocol: Protocol::Udp,
            port: number.parse().unwrap(),
        }
    };
    EndpointSubset {
        addresses: addresses.split_whitespace().map(address).collect(),
        ports: ports.split_whitespace().map(port).collect(),
    }
}

fn endpoints(of: &str, addresses: &str, ports: &str) -> Endpoints {
    Endpoints {
        id: id(of),
        subsets: vec![subset(addresses, ports)],
    }
}

/// A pod; an empty `interface` means none.
fn pod(of: &str, ip: &str, interface: &str) -> LocalPod {
    LocalPod {
        id: id(of),
        ip: ip.to_owned(),
        interface_name: Some(interface.to_owned()).filter(|name| !name.is_empty()),
    }
}

/// Interfaces as `name network ip`, where `-` is empty; the name of one that is a service endpoint begins with `*`.
fn allocation(pod: &str, interfaces: &[&str]) -> CustomIpAllocation {
    let interface = |text: &&str| {
        let mut parts = text.split_whitespace().map(|part| if part == "-" { "" } else { part });
        let mut part = || parts.next().unwrap().to_owned();
        let (name, network, ip) = (part(), part(), part());
        CustomInterface {
            name: "eth".to_owned(),
            service_endpoint: name.starts_with('*'),
            interface_name: Some(name.trim_start_matches('*').to_owned()).filter(|name| !name.is_empty()),
            network,
            ip,
        }
    };
    CustomIpAllocation {
        pod: id(pod),
        interfaces: interfaces.iter().map(interface).collect(),
    }
}

fn node(name: &str, data_plane: &[&str], management: &[&str]) -> Node {
    Node {
        id: 1,
        name: name.to_owned(),
        vpp_ip_addresses: owned(data_plane),
        mgmt_ip_addresses: owned(management),
        pod_cidr: String::new(),
    }
}

/// Lets the renderers refuse these calls from now on; with blanks between them.
fn refuse_all(world: &mut Simulation, calls: &str) {
    for call in calls.split_whitespace() {
        let fault = serde_json::json!({"call": format!("renderer.{call}"), "error": "no", "times": null});
        world.questions.add_fault(&fault);
    }
}

/// A new instance, and renderers that refuse a resync so many times.
fn unready(error: &str, times: u64) -> (Processor, Simulation) {
    let mut world = Simulation::default();
    let fault = serde_json::json!({"call": "renderer.resync", "error": error, "times": times});
    world.questions.add_fault(&fault);
    (instance(), world)
}

/// A service at this cluster address, whose one port leads to these endpoints.
fn web(cluster_ip: &str, addresses: &str) -> State {
    State {
        services: vec![service("web", cluster_ip, "p:1")],
        endpoints: vec![endpoints("web", addresses, "p:1")],
        ..nothing()
    }
}

/// The calls that an event made, in short: see [`short`].
fn update(processor: &mut Processor, world: &mut Simulation, event: Event) -> Vec<String> {
    processor.update(world, event).unwrap();
    calls(world)
}

/// The calls since the last time.
fn calls(world: &mut Simulation) -> Vec<String> {
    world.questions.take_calls().iter().map(short).collect()
}

/// `add default/web`, `update default/web`, `delete default/web`, `nodes [ips] [ids]`, `frontends [old] [new]`,
/// `backends [old] [new]`, `resync [ids]`.
fn short(call: &serde_json::Value) -> String {
    let args = &call["args"];
    let list = |value: &serde_json::Value| {
        let text = |value: &serde_json::Value| match value.as_str() {
            Some(text) => text.to_owned(),
            None => format!(
                "{}/{}",
                value["id"]["namespace"].as_str().unwrap(),
                value["id"]["name"].as_str().unwrap()
            ),
        };
        let items: Vec<String> = value.as_array().unwrap().iter().map(text).collect();
        format!("[{}]", items.join(" "))
    };
    let one = |value: &serde_json::Value| list(&serde_json::json!([value])).replace(['[', ']'], "");
    match call["call"].as_str().unwrap() {
        "renderer.add-service" => format!("add {}", one(&args["service"])),
        "renderer.update-service" => format!("update {}", one(&args["new"])),
        "renderer.delete-service" => format!("delete {}", one(&args["service"])),
        "renderer.update-node-port-services" => {
            format!("nodes {} {}", list(&args["node_ips"]), list(&args["services"]))
        }
        "renderer.update-local-frontend-ifs" => format!("frontends {} {}", list(&args["old"]), list(&args["new"])),
        "renderer.update-local-backend-ifs" => format!("backends {} {}", list(&args["old"]), list(&args["new"])),
        "renderer.resync" => format!("resync {}", list(&args["event"]["services"])),
        other => panic!("no call {other}"),
    }
}

/// What a resync with this state hands over.
fn handed(state: State) -> ResyncEvent {
    let mut world = Simulation::default();
    instance().resync(&mut world, state).unwrap();
    let calls = world.questions.take_calls();
    serde_json::from_value(calls[0]["args"]["event"].clone()).unwrap()
}
