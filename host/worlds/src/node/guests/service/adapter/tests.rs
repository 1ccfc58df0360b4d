//! From objects to the guests' input: one statement per test.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use trueup_sources::{Batch, Change as Changed, Kind, Object, ObjectRef};

use super::*;
use crate::node::guests::service::ObjectId;
use crate::slices::testing::{gone, is, merge};

mod endpoints;
mod fail_safe;
mod interfaces;
mod pods;
mod property;
mod services;
mod unhonoured;

fn cluster() -> Cluster {
    cluster_with(Interfaces::None)
}

fn cluster_with(interfaces: Interfaces) -> Cluster {
    Cluster::new("node-a", interfaces, false)
}

/// A complete look.
fn look(changes: impl IntoIterator<Item = Changed>) -> Batch {
    Batch {
        changes: changes.into_iter().collect(),
        complete: true,
        ..Batch::default()
    }
}

/// A cluster after a first complete look at these objects.
fn with(objects: impl IntoIterator<Item = Object>) -> Cluster {
    let mut cluster = cluster();
    let told = cluster.take_in(&look(objects.into_iter().map(is)));
    assert_eq!((told.events, told.nodes), (vec![], vec![]), "a resync tells it");
    cluster
}

fn reference(kind: Kind, name: &str) -> ObjectRef {
    let namespace = if kind.has_namespace() { "shop" } else { "" };
    ObjectRef {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn id(name: &str) -> ObjectId {
    ObjectId {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    }
}

/// A Service in `shop` with this spec.
fn service(name: &str, spec: Value) -> Object {
    whole_service(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}))
}

fn whole_service(service: Value) -> Object {
    Object::Service(Arc::new(serde_json::from_value(service).unwrap()))
}

/// A slice of the Service `web` in `shop`, with these ports and endpoints.
fn slice(name: &str, ports: Value, endpoints: Value) -> Object {
    slice_of("web", name, json!({"ports": ports, "endpoints": endpoints}))
}

fn slice_of(service: &str, name: &str, patch: Value) -> Object {
    let labels = json!({"kubernetes.io/service-name": service});
    let mut slice = json!({
        "metadata": {"name": name, "namespace": "shop", "labels": labels}, "addressType": "IPv4", "endpoints": [],
    });
    merge(&mut slice, patch);
    Object::EndpointSlice(Arc::new(serde_json::from_value(slice).unwrap()))
}

/// An endpoint with this condition: `ready`, `terminating` (and serving), or neither.
fn endpoint(address: &str, pod: &str, condition: &str) -> Value {
    let (ready, serving, terminating) = match condition {
        "ready" => (true, true, false),
        "terminating" => (false, true, true),
        _ => (false, false, true),
    };
    json!({
        "addresses": [address], "nodeName": "node-a", "targetRef": {"kind": "Pod", "name": pod},
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
    })
}

fn http(port: u16) -> Value {
    json!([{"name": "http", "port": port, "protocol": "TCP"}])
}

/// A running pod on `node-a`.
fn pod(name: &str, ip: &str, patch: Value) -> Object {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}")},
        "spec": {"nodeName": "node-a", "containers": []},
        "status": {"podIP": ip, "phase": "Running"},
    });
    merge(&mut pod, patch);
    Object::Pod(Arc::new(serde_json::from_value(pod).unwrap()))
}

fn node(name: &str, ip: &str) -> Object {
    let node = json!({
        "metadata": {"name": name}, "spec": {"podCIDR": "10.1.1.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": ip}]},
    });
    Object::Node(Arc::new(serde_json::from_value(node).unwrap()))
}

/// Events in short form: the action and its object.
fn short(events: &[Event]) -> Vec<String> {
    let of = |verb: &str, id: &ObjectId| format!("{verb} {}", id.name);
    let short = |event: &Event| match event {
        Event::ServicePut(service) => of("service", &service.id),
        Event::ServiceDeleted(id) => of("-service", id),
        Event::EndpointsPut(endpoints) => of("endpoints", &endpoints.id),
        Event::EndpointsDeleted(id) => of("-endpoints", id),
        Event::PodAdded(pod) => of("pod", &pod.id),
        Event::PodDeleted(id) => of("-pod", id),
        other => panic!("never told: {other:?}"),
    };
    events.iter().map(short).collect()
}

#[test]
fn one_look_is_told_in_order_and_what_is_the_same_is_not_told() {
    let mut cluster = with([
        service("old", json!({})),
        slice_of("old", "old-1", json!({})),
        pod("p0", "10.1.1.9", json!({})),
        node("node-z", "10.0.0.9"),
    ]);
    let objects = || {
        [
            pod("p1", "10.1.1.1", json!({})),
            slice("web-1", http(8080), json!([endpoint("10.1.1.1", "p1", "ready")])),
            service("web", json!({"clusterIP": "10.96.0.1"})),
            node("node-a", "10.0.0.1"),
        ]
    };
    let gone = [
        gone(&service("old", json!({}))),
        gone(&slice_of("old", "old-1", json!({}))),
        gone(&pod("p0", "", json!({}))),
        gone(&node("node-z", "")),
    ];
    let told = cluster.take_in(&look(objects().map(is).into_iter().chain(gone)));
    assert_eq!(
        short(&told.events),
        [
            "-service old",
            "service web",
            "-endpoints old",
            "endpoints web",
            "-pod p0",
            "pod p1"
        ]
    );
    let nodes = cluster.kube_nodes();
    assert_eq!(
        told.nodes,
        [
            Change::KubeNodePut(nodes[0].clone()),
            Change::KubeNodeDeleted("node-z".to_owned())
        ]
    );
    assert_eq!(cluster.take_in(&look(objects().map(is))), Changes::default());

    let mut other = objects();
    if let Object::Service(service) = &mut other[2] {
        Arc::make_mut(service).metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
    }
    assert_eq!(cluster.take_in(&look(other.map(is))), Changes::default());
    let served = json!({"clusterIP": "10.96.0.2"});
    let told = cluster.take_in(&look([is(service("web", served))]));
    assert_eq!(short(&told.events), ["service web"]);
}

#[test]
fn what_came_and_went_within_one_look_is_not_told() {
    let mut cluster = with([service("web", json!({"clusterIP": "10.96.0.1"}))]);
    let there_and_back = [
        is(service("web", json!({"clusterIP": "10.96.0.2"}))),
        is(service("web", json!({"clusterIP": "10.96.0.1"}))),
        is(pod("p", "10.1.1.1", json!({}))),
        gone(&pod("p", "10.1.1.1", json!({}))),
    ];
    assert_eq!(cluster.take_in(&look(there_and_back)), Changes::default());
}

#[test]
fn a_node_is_told_with_the_addresses_of_known_types_and_its_pod_cidr() {
    let addresses = json!([
        {"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "ExternalIP", "address": "192.0.2.1"}, {"type": "InternalDNS", "address": "a.in"},
        {"type": "ExternalDNS", "address": "a.out"}, {"type": "Carrier", "address": "pigeon"},
    ]);
    let whole =
        json!({"metadata": {"name": "a"}, "spec": {"podCIDR": "10.1.1.0/24"}, "status": {"addresses": addresses}});
    let bare = json!({"metadata": {"name": "b"}});
    let node = |node: Value| Object::Node(Arc::new(serde_json::from_value(node).unwrap()));
    let cluster = with([node(whole), node(bare)]);
    let told: Vec<Value> = cluster
        .kube_nodes()
        .iter()
        .map(|node| serde_json::to_value(node).unwrap())
        .collect();
    let types: Vec<&str> = told[0]["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|address| address["address"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["a", "10.0.0.1", "192.0.2.1", "a.in", "a.out"]);
    let first = cluster.kube_nodes().remove(0);
    use trueup_capabilities::bindings::kube::types::NodeAddressType as Type;
    let types: Vec<Type> = first.addresses.iter().map(|address| address.address_type).collect();
    assert_eq!(
        types,
        [
            Type::Hostname,
            Type::InternalIp,
            Type::ExternalIp,
            Type::InternalDns,
            Type::ExternalDns
        ]
    );
    assert_eq!(first.pod_cidr, "10.1.1.0/24");
    let second = cluster.kube_nodes().remove(1);
    assert_eq!(
        (second.name.as_str(), second.addresses.len(), second.pod_cidr.as_str()),
        ("b", 0, "")
    );
}

#[test]
fn notes_are_told_once_and_again_when_they_come_again() {
    let bad = || service("web", json!({"ports": [{"port": 80, "protocol": "DCCP"}]}));
    let good = || service("web", json!({"ports": [{"port": 80}]}));
    let note = "service `shop/web`: port 80 speaks `DCCP`, which is not TCP, UDP or SCTP: left out";
    let mut cluster = cluster();
    assert_eq!(cluster.take_in(&look([is(bad())])).notes, [note]);
    assert_eq!(cluster.take_in(&look([is(bad())])).notes, [""; 0]);
    assert_eq!(cluster.notes().collect::<Vec<_>>(), [note]);
    assert_eq!(cluster.take_in(&look([is(good())])).notes, [""; 0]);
    assert_eq!(cluster.notes().count(), 0);
    assert_eq!(cluster.take_in(&look([is(bad())])).notes, [note]);
    let other = is(good_pod());
    cluster.take_in(&look([gone(&bad()), other]));
    assert_eq!(cluster.notes().count(), 0);
}

fn good_pod() -> Object {
    pod("p", "10.1.1.1", json!({}))
}

#[test]
fn an_id_reads_back_as_its_text() {
    assert_eq!("shop/web".parse::<Id>().unwrap().to_string(), "shop/web");
    for text in ["", "web", "/web", "shop/", "a/b/c"] {
        let cause = text.parse::<Id>().unwrap_err();
        assert_eq!(
            cause,
            format!("was `{text}`, must be NAMESPACE/NAME, such as `shop/web-0`")
        );
    }
}
