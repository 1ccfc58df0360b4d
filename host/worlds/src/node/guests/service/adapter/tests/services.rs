//! The input for a Service.

use super::*;
use crate::node::guests::service::{Protocol, Service, ServicePort};

fn only(object: Object) -> Service {
    let cluster = with([object]);
    let mut notes = cluster.notes();
    assert!(
        notes.all(|note| note.contains("not honoured")),
        "{:?}",
        cluster.notes().collect::<Vec<_>>()
    );
    cluster.services().remove(0)
}

fn port(name: &str, protocol: Protocol, port: u16, node_port: u16) -> ServicePort {
    ServicePort {
        name: name.to_owned(),
        protocol,
        port,
        node_port,
    }
}

#[test]
fn what_a_service_leaves_out_is_what_kubernetes_takes_for_it() {
    let bare = Service {
        id: id("web"),
        service_type: "ClusterIP".to_owned(),
        cluster_ip: String::new(),
        external_ips: vec![],
        lb_ingress_ips: vec![],
        external_traffic_policy: "Cluster".to_owned(),
        session_affinity: "None".to_owned(),
        session_affinity_timeout_s: 10_800,
        ports: vec![],
    };
    let nothing = whole_service(json!({"metadata": {"name": "web", "namespace": "shop"}}));
    assert_eq!(only(nothing), bare);
    assert_eq!(only(service("web", json!({}))), bare);
    let ports = json!([{"port": 80}]);
    assert_eq!(
        only(service("web", json!({"clusterIP": "None", "ports": ports}))),
        Service {
            cluster_ip: "None".to_owned(),
            ports: vec![port("", Protocol::Tcp, 80, 0)],
            ..bare
        }
    );
}

#[test]
fn a_service_is_told_as_it_is() {
    let whole = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
            "externalIPs": ["192.0.2.7", "192.0.2.6"], "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "ports": [
                {"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080, "protocol": "TCP"},
                {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "sig", "port": 65535, "protocol": "SCTP"},
            ],
        },
        "status": {"loadBalancer": {"ingress": [
            {"ip": "203.0.113.1"}, {"hostname": "lb.example"}, {"ip": "203.0.113.2", "ipMode": "VIP"},
            {"ip": "203.0.113.3", "ipMode": "Proxy"},
        ]}},
    });
    let texts = |texts: &[&str]| -> Vec<String> { texts.iter().map(|&text| text.to_owned()).collect() };
    assert_eq!(
        only(whole_service(whole)),
        Service {
            id: id("web"),
            service_type: "LoadBalancer".to_owned(),
            cluster_ip: "10.96.0.1".to_owned(),
            external_ips: texts(&["192.0.2.7", "192.0.2.6"]),
            lb_ingress_ips: texts(&["203.0.113.1", "203.0.113.2"]),
            external_traffic_policy: "Local".to_owned(),
            session_affinity: "ClientIP".to_owned(),
            session_affinity_timeout_s: 60,
            ports: vec![
                port("http", Protocol::Tcp, 80, 30080),
                port("dns", Protocol::Udp, 53, 0),
                port("sig", Protocol::Sctp, 65535, 0),
            ],
        }
    );
}

#[test]
fn a_port_of_an_unknown_protocol_is_left_out_alone() {
    let ports = json!([{"name": "a", "port": 80, "protocol": "DCCP"}, {"name": "b", "port": 81}]);
    let cluster = with([service("web", json!({"ports": ports}))]);
    let ports = cluster.services().remove(0).ports;
    assert_eq!(ports, [port("b", Protocol::Tcp, 81, 0)]);
    assert_eq!(cluster.notes().count(), 1);
}

#[test]
fn a_service_that_says_what_cannot_be_stands_as_it_was() {
    let good = || service("web", json!({"clusterIP": "10.96.0.1"}));
    let mut all = with([good()]);
    let before = all.services();
    for (spec, cause) in [
        (
            json!({"ports": [{"port": 1}, {"port": 70000}]}),
            "spec.ports[1].port: was 70000, must be a whole number from 1 to 65535",
        ),
        (
            json!({"ports": [{"port": 0}]}),
            "spec.ports[0].port: was 0, must be a whole number from 1 to 65535",
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": -1}]}),
            "spec.ports[0].nodePort: was -1, must be a whole number from 0 to 65535",
        ),
        (
            json!({"type": "Tunnel"}),
            "spec.type: was `Tunnel`, must be ClusterIP or NodePort or LoadBalancer or ExternalName",
        ),
        (
            json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: was 0, must be from 1 to 86400",
        ),
    ] {
        let told = all.take_in(&look([is(service("web", spec.clone()))]));
        let note = format!("service `shop/web`: {cause}; what was known of it stays");
        assert_eq!((told.notes, told.events), (vec![note.clone()], vec![]), "{spec}");
        assert_eq!(all.services(), before);

        let mut new = cluster();
        assert_eq!(new.take_in(&look([is(service("web", spec))])).notes, [note]);
        assert_eq!((new.services(), new.is_complete()), (vec![], true));
        assert_eq!(short(&new.take_in(&look([is(good())])).events), ["service web"]);
    }
    let other = is(good_pod());
    let told = all.take_in(&look([gone(&good()), other]));
    assert_eq!(
        short(&told.events),
        ["-service web", "pod p"],
        "it is gone, broken or not"
    );
}
