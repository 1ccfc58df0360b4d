//! The model of `nat44`: turns settings, and the desired state of the renderer, into keys and values as text.
//!
//! Written only from the specification; it shares nothing with the guest.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use trueup_capabilities::renderer::{Backend, ContivService, Protocol, ServicePort, TrafficPolicy};

use super::addresses::{Network, address, is_in};
use super::services::Wanted;

/// Every VRF: that of a pool address without a VRF of its own.
const ANY_VRF: u32 = u32::MAX;

/// The guest's settings. A default may be written or left out: see [`Settings::json`].
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) snat_only: bool,
    pub(crate) nat_external_traffic: bool,
    pub(crate) service_local_endpoint_weight: u8,
    pub(crate) main_vrf_id: u32,
    pub(crate) pod_vrf_id: u32,
    pub(crate) node_to_node_transport: &'static str,
    pub(crate) pod_subnet_this_node: &'static str,
    pub(crate) node_ip: &'static str,
    pub(crate) host_ips: Vec<&'static str>,
    pub(crate) main_interface: &'static str,
    pub(crate) other_interfaces: Vec<(&'static str, Vec<&'static str>)>,
    pub(crate) default_gateway: &'static str,
    pub(crate) stn_mode: bool,
    pub(crate) use_dhcp: bool,
    pub(crate) disable_nat_virtual_reassembly: bool,
    pub(crate) leaves_defaults_out: bool,
}

/// The loopback of every case; source NAT alone does not need it.
pub(crate) const NAT_LOOPBACK: &str = "10.1.1.254";

impl Settings {
    /// The guest's configuration.
    pub(crate) fn json(&self, agent_label: &str) -> Value {
        let interfaces = self.other_interfaces.iter();
        let interfaces = interfaces.map(|(name, addresses)| json!({ "name": name, "addresses": addresses }));
        let optional = [
            ("snat_only", json!(self.snat_only), json!(false)),
            ("nat_external_traffic", json!(self.nat_external_traffic), json!(true)),
            (
                "service_local_endpoint_weight",
                json!(self.service_local_endpoint_weight),
                json!(1),
            ),
            ("main_vrf_id", json!(self.main_vrf_id), json!(0)),
            ("pod_vrf_id", json!(self.pod_vrf_id), json!(1)),
            (
                "node_to_node_transport",
                json!(self.node_to_node_transport),
                json!("vxlan"),
            ),
            ("pod_subnet_this_node", json!(self.pod_subnet_this_node), json!("")),
            ("node_ip", json!(self.node_ip), json!("")),
            ("host_ips", json!(self.host_ips), json!([])),
            ("main_interface", json!(self.main_interface), json!("")),
            ("other_interfaces", interfaces.collect(), json!([])),
            ("default_gateway", json!(self.default_gateway), json!("")),
            ("stn_mode", json!(self.stn_mode), json!(false)),
            ("use_dhcp", json!(self.use_dhcp), json!(false)),
            (
                "disable_nat_virtual_reassembly",
                json!(self.disable_nat_virtual_reassembly),
                json!(false),
            ),
        ];
        let mut settings = Map::new();
        settings.insert("agent_label".to_owned(), json!(agent_label));
        if !(self.snat_only && self.leaves_defaults_out) {
            settings.insert("nat_loopback_ip".to_owned(), json!(NAT_LOOPBACK));
        }
        for (name, value, default) in optional {
            if value != default || !self.leaves_defaults_out {
                settings.insert(name.to_owned(), value);
            }
        }
        Value::Object(settings)
    }

    fn node_address(&self) -> Option<IpAddr> {
        Network::parse(self.node_ip).map(Network::address)
    }

    /// The interface and the address of traffic that leaves the cluster.
    fn default_interface(&self) -> Option<(&'static str, IpAddr)> {
        let main = || Some((self.main_interface, self.node_address()?)).filter(|(name, _)| !name.is_empty());
        let leaves = if !self.nat_external_traffic {
            None
        } else if self.stn_mode || self.use_dhcp {
            main()
        } else {
            let gateway = address(self.default_gateway)?;
            let others = self.other_interfaces.iter();
            let others = others.flat_map(|(name, addresses)| addresses.iter().map(move |text| (*name, *text)));
            main().filter(|_| is_in(self.node_ip, gateway)).or_else(|| {
                let mut others = others.filter(|(_, text)| is_in(text, gateway));
                others
                    .next()
                    .map(|(name, text)| (name, Network::parse(text).unwrap().address()))
            })
        };
        leaves.filter(|(name, _)| self.node_to_node_transport == "vxlan" || *name != self.main_interface)
    }

    fn vrf_of(&self, backend: IpAddr) -> u32 {
        let is_host =
            self.node_address() == Some(backend) || self.host_ips.iter().any(|text| address(text) == Some(backend));
        let is_routed = self.node_to_node_transport != "vxlan" && !is_in(self.pod_subnet_this_node, backend);
        if is_host || is_routed {
            self.main_vrf_id
        } else {
            self.pod_vrf_id
        }
    }
}

/// The prefix of its keys.
pub(crate) fn prefix(agent_label: &str) -> String {
    format!("/vnf-agent/{agent_label}/config/vpp/nat/v2/")
}

/// Every key of the renderer, with its value.
pub(crate) fn written(settings: &Settings, agent_label: &str, wanted: &Wanted) -> BTreeMap<String, String> {
    let prefix = prefix(agent_label);
    let nothing = Wanted {
        node_ips: Vec::new(),
        services: BTreeMap::new(),
        frontend_ifs: Vec::new(),
        backend_ifs: Vec::new(),
    };
    let wanted = if settings.snat_only { &nothing } else { wanted };
    let services = wanted.services.iter().map(|((namespace, name), service)| {
        let label = format!("{namespace}/{name}");
        (
            format!("{prefix}dnat44/{label}"),
            dnat(settings, &label, &wanted.node_ips, service),
        )
    });
    let mut written: BTreeMap<String, String> = services.collect();
    written.insert(format!("{prefix}dnat44/DNAT-identities"), identities(settings));
    written.insert(format!("{prefix}nat44-global"), global(settings, wanted));
    written
}

/// An object of the fields without their default.
fn object(fields: &[(&str, Option<String>)]) -> String {
    let fields = fields
        .iter()
        .filter_map(|(name, value)| Some(format!("\"{name}\":{}", value.as_ref()?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn list(elements: &[String]) -> Option<String> {
    (!elements.is_empty()).then(|| format!("[{}]", elements.join(",")))
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| Value::from(text).to_string())
}

fn number(number: impl Into<u64>) -> Option<String> {
    Some(number.into())
        .filter(|number| *number != 0)
        .map(|number| number.to_string())
}

fn truth(truth: bool) -> Option<String> {
    truth.then(|| "true".to_owned())
}

fn dnat(settings: &Settings, label: &str, node_ips: &[String], service: &ContivService) -> String {
    let mut mappings = Vec::new();
    let is_wide = service.traffic_policy == TrafficPolicy::ClusterWide;
    let outside = if is_wide { "ENABLED" } else { "SELF" };
    for (ips, is_node, twice_nat) in [
        (node_ips, true, "SELF"),
        (&service.cluster_ips, false, "SELF"),
        (&service.external_ips, false, outside),
    ] {
        for ip in ips.iter().filter(|ip| address(ip).unwrap().is_ipv4()) {
            for port in &service.ports {
                let number = if is_node { port.node_port } else { port.port };
                mappings.extend(mapping(settings, service, port, ip, number, twice_nat));
            }
        }
    }
    object(&[("label", text(label)), ("st_mappings", list(&mappings))])
}

fn mapping(
    settings: &Settings,
    service: &ContivService,
    port: &ServicePort,
    ip: &str,
    external_port: u16,
    twice_nat: &str,
) -> Option<String> {
    if external_port == 0 || port.protocol == Protocol::Sctp {
        return None;
    }
    let backends = service.backends.iter().filter(|of_port| of_port.port_name == port.name);
    let backends = backends.flat_map(|of_port| &of_port.backends);
    let backends: Vec<&Backend> = backends
        .filter(|backend| address(&backend.ip).unwrap().is_ipv4())
        .filter(|backend| backend.local || service.traffic_policy == TrafficPolicy::ClusterWide)
        .collect();
    let local_ips: Vec<String> = backends
        .iter()
        .map(|backend| {
            let weight = if backend.local {
                settings.service_local_endpoint_weight
            } else {
                1
            };
            object(&[
                ("vrf_id", number(settings.vrf_of(address(&backend.ip).unwrap()))),
                ("local_ip", text(&backend.ip)),
                ("local_port", number(backend.port)),
                ("probability", number(weight).filter(|_| backends.len() > 1)),
            ])
        })
        .collect();
    let is_udp = port.protocol == Protocol::Udp;
    Some(object(&[
        ("external_ip", text(ip)),
        ("external_port", number(external_port)),
        ("local_ips", Some(list(&local_ips)?)),
        ("protocol", text(if is_udp { "UDP" } else { "" })),
        ("twice_nat", text(twice_nat)),
        ("session_affinity", number(service.session_affinity_timeout_s)),
    ]))
}

/// VXLAN, and this node's own traffic.
fn identities(settings: &Settings) -> String {
    let of = |ip: IpAddr| {
        let entry = |vrf: u32, port: u16| {
            object(&[
                ("vrf_id", number(vrf)),
                ("ip_address", text(&ip.to_string())),
                ("port", number(port)),
                ("protocol", text("UDP")),
            ])
        };
        [
            entry(settings.main_vrf_id, 4789),
            entry(settings.pod_vrf_id, 0),
            entry(settings.main_vrf_id, 0),
        ]
    };
    let entries: Vec<String> = settings
        .default_interface()
        .into_iter()
        .flat_map(|(_, ip)| of(ip))
        .collect();
    object(&[("label", text("DNAT-identities")), ("id_mappings", list(&entries))])
}

fn global(settings: &Settings, wanted: &Wanted) -> String {
    let leaves = settings.default_interface();
    let interface = |name: &str, is_inside, output_feature| {
        object(&[
            ("name", text(name)),
            ("is_inside", truth(is_inside)),
            ("output_feature", truth(output_feature)),
        ])
    };
    let in_front = wanted
        .frontend_ifs
        .iter()
        .filter(|name| leaves.is_none_or(|(leaves, _)| leaves != *name));
    let mut interfaces: Vec<String> = in_front.map(|name| interface(name, false, false)).collect();
    interfaces.extend(wanted.backend_ifs.iter().map(|name| interface(name, true, false)));
    interfaces.extend(leaves.map(|(name, _)| interface(name, false, true)));
    let address = |address: &str, twice_nat: bool| {
        object(&[
            ("address", text(address)),
            ("vrf_id", number(ANY_VRF)),
            ("twice_nat", truth(twice_nat)),
        ])
    };
    let mut pool: Vec<String> = leaves.iter().map(|(_, ip)| address(&ip.to_string(), false)).collect();
    if !settings.snat_only {
        pool.push(address(NAT_LOOPBACK, true));
    }
    let fragments = object(&[("drop_fragments", truth(true))]);
    object(&[
        ("forwarding", truth(true)),
        ("nat_interfaces", list(&interfaces)),
        ("address_pool", list(&pool)),
        (
            "virtual_reassembly",
            Some(fragments).filter(|_| settings.disable_nat_virtual_reassembly),
        ),
    ])
}
