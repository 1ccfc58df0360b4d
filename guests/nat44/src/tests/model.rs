//! The expected configuration in the plainest form: text by text, from the specification.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::PREFIX;
use crate::bindings::trueup::kube::types::Protocol;
use crate::bindings::trueup::service::types::{Backend, ContivService, TrafficPolicy};

/// The settings that the model supports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wires {
    pub(super) snat_only: bool,
    pub(super) transport: &'static str,
    /// Whether the main interface leads to a default gateway.
    pub(super) has_gateway: bool,
    pub(super) weight: u32,
    pub(super) drops_fragments: bool,
}

impl Wires {
    /// As JSON.
    pub(super) fn config(self) -> String {
        let gateway = if self.has_gateway { "192.168.16.1" } else { "" };
        format!(
            r#"{{"agent_label": "a", "snat_only": {}, "nat_loopback_ip": "10.1.1.254", "main_vrf_id": 0, "pod_vrf_id": 7,
                "node_to_node_transport": "{}", "pod_subnet_this_node": "10.1.1.0/24", "node_ip": "192.168.16.10/24",
                "host_ips": ["172.30.1.1"], "main_interface": "GbE", "default_gateway": "{gateway}",
                "service_local_endpoint_weight": {}, "disable_nat_virtual_reassembly": {}}}"#,
            self.snat_only, self.transport, self.weight, self.drops_fragments
        )
    }

    fn has_uplink(self) -> bool {
        self.has_gateway && self.transport == "vxlan"
    }
}

/// The last received events.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) node_ips: Vec<String>,
    pub(super) services: BTreeMap<(String, String), ContivService>,
    pub(super) frontends: Vec<String>,
    pub(super) backends: Vec<String>,
}

/// Every key and value under the agent's prefix.
pub(super) fn wanted(wires: Wires, told: &Told) -> BTreeMap<String, String> {
    let nothing = Told::default();
    let told = if wires.snat_only { &nothing } else { told };
    let mut wanted = BTreeMap::new();
    for ((namespace, name), service) in &told.services {
        let key = format!("{PREFIX}dnat44/{namespace}/{name}");
        wanted.insert(key, dnat(wires, &told.node_ips, service));
    }
    let mut identities = r#"{"label":"DNAT-identities""#.to_owned();
    if wires.has_uplink() {
        identities += concat!(
            r#","id_mappings":[{"ip_address":"192.168.16.10","port":4789,"protocol":"UDP"},"#,
            r#"{"vrf_id":7,"ip_address":"192.168.16.10","protocol":"UDP"},"#,
            r#"{"ip_address":"192.168.16.10","protocol":"UDP"}]"#
        );
    }
    wanted.insert(format!("{PREFIX}dnat44/DNAT-identities"), identities + "}");
    wanted.insert(format!("{PREFIX}nat44-global"), global(wires, told));
    wanted
}

fn global(wires: Wires, told: &Told) -> String {
    let mut interfaces = Vec::new();
    for name in &told.frontends {
        if !(wires.has_uplink() && name == "GbE") {
            interfaces.push(format!(r#"{{"name":"{name}"}}"#));
        }
    }
    for name in &told.backends {
        interfaces.push(format!(r#"{{"name":"{name}","is_inside":true}}"#));
    }
    let mut pool = Vec::new();
    if wires.has_uplink() {
        interfaces.push(r#"{"name":"GbE","output_feature":true}"#.to_owned());
        pool.push(r#"{"address":"192.168.16.10","vrf_id":4294967295}"#);
    }
    if !wires.snat_only {
        pool.push(r#"{"address":"10.1.1.254","vrf_id":4294967295,"twice_nat":true}"#);
    }
    let mut text = r#"{"forwarding":true"#.to_owned();
    if !interfaces.is_empty() {
        text += &format!(r#","nat_interfaces":[{}]"#, interfaces.join(","));
    }
    if !pool.is_empty() {
        text += &format!(r#","address_pool":[{}]"#, pool.join(","));
    }
    if wires.drops_fragments {
        text += r#","virtual_reassembly":{"drop_fragments":true}"#;
    }
    text + "}"
}

fn is_v4(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok()
}

fn dnat(wires: Wires, node_ips: &[String], service: &ContivService) -> String {
    let mut mappings = Vec::new();
    for (kind, addresses) in [
        ("node", node_ips),
        ("cluster", &service.cluster_ips),
        ("external", &service.external_ips),
    ] {
        for address in addresses.iter().filter(|text| is_v4(text)) {
            for port in &service.ports {
                let number = if kind == "node" { port.node_port } else { port.port };
                if number == 0 || port.protocol == Protocol::Sctp {
                    continue;
                }
                let local_ips = local_ips(wires, service, &port.name);
                if local_ips.is_empty() {
                    continue;
                }
                let mut mapping = format!(
                    r#"{{"external_ip":"{address}","external_port":{number},"local_ips":[{}]"#,
                    local_ips.join(",")
                );
                if port.protocol == Protocol::Udp {
                    mapping += r#","protocol":"UDP""#;
                }
                let is_both = kind == "external" && service.traffic_policy == TrafficPolicy::ClusterWide;
                mapping += if is_both {
                    r#","twice_nat":"ENABLED""#
                } else {
                    r#","twice_nat":"SELF""#
                };
                if service.session_affinity_timeout_s != 0 {
                    mapping += &format!(r#","session_affinity":{}"#, service.session_affinity_timeout_s);
                }
                mappings.push(mapping + "}");
            }
        }
    }
    let mut text = format!(r#"{{"label":"{}/{}""#, service.id.namespace, service.id.name);
    if !mappings.is_empty() {
        text += &format!(r#","st_mappings":[{}]"#, mappings.join(","));
    }
    text + "}"
}

fn local_ips(wires: Wires, service: &ContivService, port_name: &str) -> Vec<String> {
    let of_port = service
        .backends
        .iter()
        .filter(|backends| backends.port_name == port_name);
    let all = of_port.flat_map(|backends| &backends.backends);
    let is_left = |backend: &&Backend| {
        is_v4(&backend.ip) && (service.traffic_policy == TrafficPolicy::ClusterWide || backend.local)
    };
    let left: Vec<&Backend> = all.filter(is_left).collect();
    let is_alone = left.len() == 1;
    let text = |backend: &&Backend| {
        let is_host = backend.ip == "192.168.16.10" || backend.ip == "172.30.1.1";
        let is_main = is_host || (wires.transport != "vxlan" && !backend.ip.starts_with("10.1.1."));
        let mut text = "{".to_owned();
        if !is_main {
            text += r#""vrf_id":7,"#;
        }
        text += &format!(r#""local_ip":"{}""#, backend.ip);
        if backend.port != 0 {
            text += &format!(r#","local_port":{}"#, backend.port);
        }
        if !is_alone {
            let weight = if backend.local { wires.weight } else { 1 };
            text += &format!(r#","probability":{weight}"#);
        }
        text + "}"
    };
    left.iter().map(text).collect()
}
