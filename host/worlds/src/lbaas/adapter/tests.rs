//! From objects to the desired state: one statement per test.

use serde_json::{Value, json};
use trueup_sources::ObjectRef;

use super::*;
use crate::slices::testing::merge;

fn settings() -> Settings {
    Settings {
        cluster: "c1".to_owned(),
        load_balancers: ["lb-1", "lb-2"].map(str::to_owned).to_vec(),
        addresses: vec!["203.0.113.10".to_owned()],
        backoff_steps: 30,
    }
}

fn key() -> Key {
    Key {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    }
}

/// A Service `shop/web` with two ports, changed by a JSON merge patch.
fn service(patch: Value) -> Object {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
        "spec": {"type": "LoadBalancer", "ports": [
            {"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"},
            {"port": 443, "nodePort": 30443},
        ]},
    });
    merge(&mut service, patch);
    Object::Service(std::sync::Arc::new(serde_json::from_value(service).unwrap()))
}

fn node(name: &str, patch: Value) -> Object {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.1.0.1"}],
        },
    });
    merge(&mut node, patch);
    Object::Node(std::sync::Arc::new(serde_json::from_value(node).unwrap()))
}

fn desired_for(service: Object) -> Option<Result<Desired, String>> {
    let objects: Objects = [service, node("n1", json!({}))].into_iter().collect();
    desired(&objects, &key(), &servers(&objects), &settings())
}

#[test]
fn a_service_becomes_the_guests_input() {
    let desired = desired_for(service(json!({}))).unwrap().unwrap();
    let expected = json!({
        "load_balancers": ["lb-1", "lb-2"],
        "name_suffix": "web.shop.c1",
        "service_uid": "u1",
        "external_addresses": ["203.0.113.10"],
        "ports": [
            {"name": "http", "external": 80, "internal": 30080},
            {"name": "443", "external": 443, "internal": 30443},
        ],
        "servers": [{"name": "n1", "address": "10.1.0.1"}],
        "backoff_steps": 30,
    });
    assert_eq!(serde_json::to_value(desired).unwrap(), expected);
}

#[test]
fn only_services_for_us_are_desired() {
    for (patch, ours) in [
        (json!({}), true),
        (json!({"spec": {"type": "ClusterIP"}}), false),
        (json!({"spec": {"type": null}}), false),
        (json!({"spec": null}), false),
        (json!({"spec": {"loadBalancerClass": "example.org/other"}}), false),
        (json!({"spec": {"loadBalancerClass": LOAD_BALANCER_CLASS}}), true),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}),
            false,
        ),
    ] {
        assert_eq!(desired_for(service(patch.clone())).is_some(), ours, "{patch}");
    }
}

#[test]
fn the_most_particular_addresses_win() {
    let annotated = |list: &str| json!({"metadata": {"annotations": {ADDRESSES_ANNOTATION: list}}});
    let both = json!({
        "spec": {"loadBalancerIP": "192.0.2.1"}, "metadata": {"annotations": {ADDRESSES_ANNOTATION: "192.0.2.2"}},
    });
    for (patch, expected) in [
        (both, vec!["192.0.2.1"]),
        (
            annotated(" 192.0.2.2 ,2001:db8::2,, "),
            vec!["192.0.2.2", "2001:db8::2"],
        ),
        (annotated(" , "), vec!["203.0.113.10"]),
        (json!({"spec": {"loadBalancerIP": ""}}), vec!["203.0.113.10"]),
    ] {
        let desired = desired_for(service(patch.clone())).unwrap().unwrap();
        assert_eq!(desired.external_addresses, expected, "{patch}");
    }
}

#[test]
fn what_cannot_be_served_is_one_line() {
    let ports = |ports: Value| service(json!({"spec": {"ports": ports}}));
    for (service, expected) in [
        (
            ports(json!([{"name": "http", "port": 80}])),
            "service `shop/web`: port `http` has no nodePort: set spec.ports[].nodePort, or let the cluster assign one",
        ),
        (
            ports(json!([{"port": 80, "nodePort": 0}])),
            "service `shop/web`: port `80` has no nodePort: set spec.ports[].nodePort, or let the cluster assign one",
        ),
        (
            ports(json!([{"name": "dns", "port": 53, "nodePort": 30053, "protocol": "UDP"}])),
            "service `shop/web`: port `dns` has protocol `UDP`: only TCP can be load-balanced here",
        ),
        (
            ports(json!([{"port": 70000, "nodePort": 30080}])),
            "service `shop/web`: port `70000`: port was 70000, must be 1 to 65535",
        ),
        (
            ports(json!([{"name": "http", "port": 80, "nodePort": -1}])),
            "service `shop/web`: port `http`: nodePort was -1, must be 1 to 65535",
        ),
    ] {
        assert_eq!(desired_for(service).unwrap().unwrap_err(), expected);
    }
    let none = Settings {
        addresses: Vec::new(),
        ..settings()
    };
    let objects: Objects = [service(json!({}))].into_iter().collect();
    let error = desired(&objects, &key(), &Servers::default(), &none)
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error,
        "service `shop/web`: has no external address: set spec.loadBalancerIP, the annotation `trueup.dev/addresses`, \
         or `addresses` in [adapter.lbaas]"
    );
}

#[test]
fn servers_are_ready_nodes_that_are_not_excluded() {
    let address = |addresses: Value| json!({"status": {"addresses": addresses}});
    let conditions = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    let two = json!([{"type": "InternalIP", "address": "10.1.0.3"}, {"type": "InternalIP", "address": "10.1.0.4"}]);
    let objects: Objects = [
        node("n3", address(two)),
        node("n1", json!({})),
        node("not-ready", conditions("False")),
        node("unknown", conditions("Unknown")),
        node("new", json!({"status": null})),
        node("excluded", json!({"metadata": {"labels": {EXCLUDE_LABEL: "false"}}})),
        node(
            "outside",
            address(json!([{"type": "ExternalIP", "address": "192.0.2.1"}])),
        ),
        node("odd", address(json!([{"type": "InternalIP", "address": "node-7"}]))),
    ]
    .into_iter()
    .collect();
    let servers = servers(&objects);
    let named: Vec<(&str, &str)> = servers
        .targets
        .iter()
        .map(|target| (target.name.as_str(), target.address.as_str()))
        .collect();
    assert_eq!(named, [("n1", "10.1.0.1"), ("n3", "10.1.0.3")]);
    assert_eq!(
        servers.notes,
        [
            "node `odd` is ready but its InternalIP `node-7` is no IP address: it gets no traffic",
            "node `outside` is ready but has no InternalIP: it gets no traffic",
        ]
    );
}

#[test]
fn a_missing_uid_is_made_from_cluster_namespace_and_name() {
    let desired = desired_for(service(json!({"metadata": {"uid": null}})))
        .unwrap()
        .unwrap();
    assert_eq!(desired.service_uid, made_uid(&key(), &settings()));
    assert_eq!(desired.service_uid, "8b632936-e3fd-5459-ab8f-1e0ee055f5fb");
    assert_eq!(UID_NAMESPACE, Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"trueup.dev"));
    let other = Settings {
        cluster: "c2".to_owned(),
        ..settings()
    };
    assert_ne!(made_uid(&key(), &other), made_uid(&key(), &settings()));
}

#[test]
fn a_service_that_went_away_desires_nothing_under_its_old_uid() {
    let expected = json!({
        "load_balancers": ["lb-1", "lb-2"], "name_suffix": "web.shop.c1", "service_uid": "u1", "external_addresses": [],
        "ports": [], "servers": [], "backoff_steps": 30,
    });
    assert_eq!(
        serde_json::to_value(removal(&key(), "u1", settings().load_balancers, &settings())).unwrap(),
        expected
    );
}

/// A change of an object, and the objects before it.
fn changed(reference: ObjectRef, was: Option<&Object>, now: Option<&Object>) -> (Change, Objects) {
    let now = now.cloned();
    (Change { reference, now }, was.into_iter().cloned().collect())
}

#[test]
fn a_change_of_a_service_affects_it_where_it_is_or_was_ours() {
    let ours = service(json!({}));
    let other = service(json!({"spec": {"type": "ClusterIP"}}));
    for (was, now, affects) in [
        (None, Some(&ours), true),
        (Some(&ours), None, true),
        (Some(&ours), Some(&other), true),
        (Some(&other), Some(&ours), true),
        (None, Some(&other), false),
        (Some(&other), None, false),
        (None, None, false),
    ] {
        let (change, before) = changed(ours.reference(), was, now);
        assert_eq!(affects_key(&change, &before), affects, "{was:?} {now:?}");
    }
}

#[test]
fn a_change_of_a_node_concerns_servers_where_load_balancers_see_it() {
    let plain = node("n1", json!({}));
    let beaten = node(
        "n1",
        json!({"metadata": {"resourceVersion": "2", "labels": {"zone": "a"}}}),
    );
    let moved = node(
        "n1",
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.1.0.9"}]}}),
    );
    let excluded = node("n1", json!({"metadata": {"labels": {EXCLUDE_LABEL: ""}}}));
    for (was, now, concerned) in [
        (Some(&plain), Some(&beaten), false),
        (Some(&plain), Some(&moved), true),
        (Some(&plain), Some(&excluded), true),
        (Some(&excluded), None, false),
        (None, Some(&excluded), false),
        (None, Some(&plain), true),
        (Some(&plain), None, true),
    ] {
        let (change, before) = changed(plain.reference(), was, now);
        assert_eq!(concerns_servers(&change, &before), concerned, "{was:?} {now:?}");
    }
}

#[test]
fn status_is_written_as_kubernetes_does() {
    let in_service = [
        AddressPorts {
            address: "203.0.113.10".to_owned(),
            ports: vec![80, 443],
        },
        AddressPorts {
            address: "2001:db8::1".to_owned(),
            ports: vec![80],
        },
    ];
    let expected = json!({"loadBalancer": {"ingress": [
        {"ip": "203.0.113.10", "ports": [{"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}]},
        {"ip": "2001:db8::1", "ports": [{"port": 80, "protocol": "TCP"}]},
    ]}});
    assert_eq!(serde_json::to_value(status(&in_service)).unwrap(), expected);
    assert_eq!(serde_json::to_value(status(&[])).unwrap(), json!({"loadBalancer": {}}));
}

#[test]
fn a_service_for_some_clients_alone_is_refused() {
    let ranges = |ranges: Value| json!({"spec": {"loadBalancerSourceRanges": ranges}});
    let line = desired_for(service(ranges(json!(["198.51.100.0/24"]))))
        .unwrap()
        .unwrap_err();
    assert!(
        line.starts_with("service `shop/web`: spec.loadBalancerSourceRanges can't be held to by these load balancers"),
        "{line}"
    );
    let annotation = json!({"service.beta.kubernetes.io/load-balancer-source-ranges": "198.51.100.0/24"});
    let annotated = service(json!({"metadata": {"annotations": annotation}}));
    let line = desired_for(annotated).unwrap().unwrap_err();
    assert!(line.contains("load-balancer-source-ranges can't be held to"), "{line}");
    assert!(
        desired_for(service(ranges(json!(["0.0.0.0/0"])))).unwrap().is_ok(),
        "every client may"
    );
}

#[test]
fn objects_are_counted_as_the_guest_makes_them() {
    let desired = desired_for(service(json!({}))).unwrap().unwrap();
    // Two load balancers and two ports, each with a backend, a frontend, one bind and one server.
    assert_eq!(object_count(&desired), 2 * 2 * 4);
}
