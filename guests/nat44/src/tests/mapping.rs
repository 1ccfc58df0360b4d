//! The contents of a DNAT and of the global configuration, beyond the scenarios.

use super::{CONFIG, dnat, event, list, service, synced, with_port};
use crate::bindings::trueup::kube::types::Protocol;
use crate::bindings::trueup::service::types::TrafficPolicy;
use crate::renderer::Renderer;
use crate::simulated::Simulation;

/// A mapping of this address and port to one backend, with a protocol if it is not TCP.
fn mapping(ip: &str, port: u16, protocol: &str) -> String {
    format!(
        r#"{{"external_ip":"{ip}","external_port":{port},"local_ips":[{{"vrf_id":2,"local_ip":"10.1.1.3","local_port":8080}}],{protocol}"twice_nat":"SELF"}}"#
    )
}

/// An instance that knows these nodes.
fn among(nodes: &str) -> (Renderer, Simulation) {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer
        .update_node_port_services(&mut world, &list(nodes), &[])
        .unwrap();
    (renderer, world)
}

#[test]
fn node_ports_come_first_on_every_node_address_with_the_local_policy() {
    let (mut renderer, mut world) = among("192.0.2.1 fd00::1 192.0.2.2");
    let mut web = service("web", "10.96.0.1", "20.0.0.1");
    web.traffic_policy = TrafficPolicy::NodeLocal;
    let web = with_port(web, "http", 80, 30080, "10.1.1.3#8080* 10.1.2.4#8080");
    let web = with_port(web, "far", 81, 30081, "10.1.2.4#8081");
    renderer.add_service(&mut world, &web).unwrap();
    let mappings = [
        mapping("192.0.2.1", 30080, ""),
        mapping("192.0.2.2", 30080, ""),
        mapping("10.96.0.1", 80, ""),
        mapping("20.0.0.1", 80, ""),
    ];
    assert_eq!(
        dnat(&world, "web"),
        format!(r#"{{"label":"default/web","st_mappings":[{}]}}"#, mappings.join(","))
    );
}

#[test]
fn what_is_zero_is_not_written() {
    let config = r#"{"agent_label": "a", "nat_loopback_ip": "10.1.1.254", "pod_vrf_id": 0}"#;
    let (mut renderer, mut world) = synced(config);
    let web = with_port(service("web", "10.96.0.1", ""), "http", 80, 0, "10.1.1.3#0");
    renderer.add_service(&mut world, &web).unwrap();
    assert_eq!(
        dnat(&world, "web"),
        r#"{"label":"default/web","st_mappings":[{"external_ip":"10.96.0.1","external_port":80,"local_ips":[{"local_ip":"10.1.1.3"}],"twice_nat":"SELF"}]}"#
    );
}

#[test]
fn addresses_have_one_spelling_and_invalid_ones_give_a_warning() {
    let (mut renderer, mut world) = among("node-a ::ffff:192.0.2.1");
    let mut web = service("web", "10.96.0.01 ::ffff:10.96.0.1 fd96::1", "None");
    web = with_port(web, "http", 80, 30080, "::ffff:10.1.1.3#8080 pod-a#8080");
    web.ports[0].protocol = Protocol::Udp;
    renderer.add_service(&mut world, &web).unwrap();
    let udp = r#""protocol":"UDP","#;
    assert_eq!(
        dnat(&world, "web"),
        format!(
            r#"{{"label":"default/web","st_mappings":[{},{}]}}"#,
            mapping("192.0.2.1", 30080, udp),
            mapping("10.96.0.1", 80, udp)
        )
    );
    let warning = |of: &str, address: &str| format!("left out what is no address of={of} address={address}");
    assert_eq!(
        world.record.messages(),
        [
            warning("nodes", "node-a"),
            warning("default/web", "10.96.0.01"),
            warning("default/web", "None"),
            warning("default/web", "pod-a")
        ]
    );
}

#[test]
fn names_are_written_as_json_has_them() {
    let (mut renderer, mut world) = synced(CONFIG);
    renderer
        .update_local_frontend_ifs(&mut world, vec!["tap\"0\u{7}ü".to_owned()])
        .unwrap();
    assert!(
        world.etcd["/vnf-agent/a/config/vpp/nat/v2/nat44-global"].contains(r#"[{"name":"tap\"0\u0007ü"}]"#),
        "{:?}",
        world.etcd
    );
}

#[test]
fn the_default_interface_as_a_backend_is_there_twice() {
    let config = r#"{"agent_label": "a", "nat_loopback_ip": "10.1.1.254", "stn_mode": true, "main_interface": "main",
        "node_ip": "192.0.2.1/24"}"#;
    let (mut renderer, mut world) = synced(config);
    let mut told = event(Vec::new());
    told.frontend_ifs = list("b main a");
    told.backend_ifs = list("main a");
    renderer.resync(&mut world, told).unwrap();
    assert_eq!(
        world.etcd["/vnf-agent/a/config/vpp/nat/v2/nat44-global"],
        r#"{"forwarding":true,"nat_interfaces":[{"name":"b"},{"name":"a"},{"name":"main","is_inside":true},{"name":"a","is_inside":true},{"name":"main","output_feature":true}],"address_pool":[{"address":"192.0.2.1","vrf_id":4294967295},{"address":"10.1.1.254","vrf_id":4294967295,"twice_nat":true}]}"#
    );
    assert_eq!(
        world.etcd["/vnf-agent/a/config/vpp/nat/v2/dnat44/DNAT-identities"],
        r#"{"label":"DNAT-identities","id_mappings":[{"ip_address":"192.0.2.1","port":4789,"protocol":"UDP"},{"vrf_id":1,"ip_address":"192.0.2.1","protocol":"UDP"},{"ip_address":"192.0.2.1","protocol":"UDP"}]}"#
    );
}
