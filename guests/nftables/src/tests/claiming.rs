//! Several claims on one key: which service has it, and which gets it next.

use super::{CONFIG, elements, id, service, synced, with_port};
use crate::bindings::trueup::service::types::ContivService;

/// A service at this external address, with or without an endpoint.
fn shared(name: &str, backends: &str) -> ContivService {
    with_port(service(name, "", "20.0.0.1"), "http", 80, 30080, backends)
}

#[test]
fn the_first_service_by_id_has_the_key_and_the_next_gets_it() {
    let (mut renderer, mut world) = synced(CONFIG);
    let has = |name: &str| {
        [
            format!("service-ips 20.0.0.1 tcp 80: ext/default/{name}/http"),
            format!("service-nodeports tcp 30080: ext/default/{name}/http"),
        ]
    };
    renderer.add_service(&mut world, shared("b", "10.1.1.3#80")).unwrap();
    assert_eq!(elements(&world, "ip"), has("b"));
    renderer.add_service(&mut world, shared("c", "10.1.1.3#80")).unwrap();
    assert_eq!(elements(&world, "ip"), has("b"));
    renderer.add_service(&mut world, shared("a", "10.1.1.3#80")).unwrap();
    assert_eq!(elements(&world, "ip"), has("a"));
    renderer.delete_service(&mut world, id("b")).unwrap();
    assert_eq!(elements(&world, "ip"), has("a"));
    renderer.delete_service(&mut world, id("a")).unwrap();
    assert_eq!(elements(&world, "ip"), has("c"));
    renderer
        .update_service(&mut world, id("c"), shared("d", "10.1.1.3#80"))
        .unwrap();
    assert_eq!(elements(&world, "ip"), has("d"));
    renderer.delete_service(&mut world, id("d")).unwrap();
    assert_eq!(elements(&world, "ip"), [] as [&str; 0]);
}

#[test]
fn the_first_has_it_in_whichever_map() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer.add_service(&mut world, shared("b", "10.1.1.3#80")).unwrap();
    renderer.add_service(&mut world, shared("a", "")).unwrap();
    assert_eq!(
        elements(&world, "ip"),
        [
            "no-endpoint-ips 20.0.0.1 tcp 80: reject-it",
            "no-endpoint-nodeports tcp 30080: reject-it"
        ]
    );
    renderer
        .update_service(&mut world, id("a"), service("a", "", ""))
        .unwrap();
    assert_eq!(
        elements(&world, "ip"),
        [
            "service-ips 20.0.0.1 tcp 80: ext/default/b/http",
            "service-nodeports tcp 30080: ext/default/b/http"
        ]
    );
}

#[test]
fn a_resync_gives_the_keys_as_events_do() {
    let (mut renderer, mut world) = synced(CONFIG);
    let services = ["c", "a", "b"].map(|name| shared(name, if name == "a" { "" } else { "10.1.1.3#80" }));
    for service in services.clone() {
        renderer.add_service(&mut world, service).unwrap();
    }
    let by_events = world.tables.clone();
    renderer.resync(&mut world, services.into()).unwrap();
    assert_eq!(world.tables, by_events);
}

#[test]
fn a_service_ranks_ports_with_endpoints_then_order_then_cluster_address() {
    let (mut renderer, mut world) = synced(CONFIG);
    let both = service("web", "10.96.0.1", "10.96.0.1");
    let both = with_port(both, "empty", 80, 30080, "");
    let both = with_port(both, "one", 80, 30080, "10.1.1.3#80");
    let both = with_port(both, "two", 80, 30080, "10.1.1.4#80");
    let has = |port: &str| {
        [
            format!("service-ips 10.96.0.1 tcp 80: svc/default/web/{port}"),
            format!("service-nodeports tcp 30080: ext/default/web/{port}"),
        ]
    };
    renderer.add_service(&mut world, both.clone()).unwrap();
    assert_eq!(elements(&world, "ip"), has("one"));
    let mut fewer = both;
    fewer.ports.remove(1);
    renderer.update_service(&mut world, id("web"), fewer).unwrap();
    assert_eq!(elements(&world, "ip"), has("two"));
}

#[test]
fn keys_of_two_protocols_are_two_keys() {
    let (mut renderer, mut world) = synced(CONFIG);
    let mut udp = shared("b", "10.1.1.3#80");
    udp.ports[0].protocol = crate::bindings::trueup::kube::types::Protocol::Udp;
    renderer.add_service(&mut world, shared("a", "10.1.1.3#80")).unwrap();
    renderer.add_service(&mut world, udp).unwrap();
    assert_eq!(
        elements(&world, "ip"),
        [
            "service-ips 20.0.0.1 tcp 80: ext/default/a/http",
            "service-ips 20.0.0.1 udp 80: ext/default/b/http",
            "service-nodeports tcp 30080: ext/default/a/http",
            "service-nodeports udp 30080: ext/default/b/http"
        ]
    );
}
