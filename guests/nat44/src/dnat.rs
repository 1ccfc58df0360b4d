//! The DNAT of a service: which address and port lead to which backends.
//!
//! Pure. Leaves out invalid addresses and reports them; leaves out IPv6 addresses silently.

use std::collections::BTreeMap;

use trueup_guest::address::Address;

use crate::bindings::trueup::kube::types;
use crate::bindings::trueup::service::types::{Backend, ContivService, ServicePort, TrafficPolicy};
use crate::keys::label;
use crate::settings::Settings;
use crate::uplink::Transport;
use crate::values::{DNat44, LocalIp, Protocol, StaticMapping, TwiceNat};

/// The DNAT, and the texts that are no addresses.
pub(crate) fn of_service(settings: &Settings, node_ips: &[Address], service: &ContivService) -> (DNat44, Vec<String>) {
    let mut no_addresses = Vec::new();
    let cluster_ips = v4(&service.cluster_ips, &mut no_addresses);
    let external_ips = v4(&service.external_ips, &mut no_addresses);
    let ports = ports(settings, service, &mut no_addresses);
    let twice_nat = match service.traffic_policy {
        TrafficPolicy::ClusterWide => TwiceNat::Enabled,
        TrafficPolicy::NodeLocal => TwiceNat::OfSelf,
    };
    let kinds: [Kind<'_>; 3] = [
        (node_ips, |port| port.node_port, TwiceNat::OfSelf),
        (&cluster_ips, |port| port.port, TwiceNat::OfSelf),
        (&external_ips, |port| port.port, twice_nat),
    ];
    let mut st_mappings = Vec::new();
    for (addresses, number, twice_nat) in kinds {
        for &address in addresses {
            let reached = ports
                .iter()
                .filter(|one| number(one.port) != 0 && !one.local_ips.is_empty());
            st_mappings.extend(reached.map(|one| StaticMapping {
                external_ip: address,
                external_port: number(one.port),
                local_ips: one.local_ips.clone(),
                protocol: one.protocol,
                twice_nat,
                session_affinity: service.session_affinity_timeout_s,
            }));
        }
    }
    let dnat = DNat44 {
        label: label(&service.id),
        st_mappings,
        id_mappings: Vec::new(),
    };
    (dnat, no_addresses)
}

/// Addresses of one kind, the number of a port on them, and the translation of the source.
type Kind<'a> = (&'a [Address], fn(&ServicePort) -> u16, TwiceNat);

/// A port with the remaining backends.
struct Port<'s> {
    port: &'s ServicePort,
    protocol: Protocol,
    local_ips: Vec<LocalIp>,
}

/// In the order given, without protocols that the agent does not have.
fn ports<'s>(settings: &Settings, service: &'s ContivService, no_addresses: &mut Vec<String>) -> Vec<Port<'s>> {
    let mut backends: BTreeMap<&str, Vec<LocalIp>> = BTreeMap::new();
    for of_port in &service.backends {
        let left = of_port.backends.iter().filter_map(|backend| {
            let address = read_v4(&backend.ip, no_addresses)?;
            let is_reached = service.traffic_policy == TrafficPolicy::ClusterWide || backend.local;
            is_reached.then(|| local_ip(settings, backend, address))
        });
        backends.entry(&of_port.port_name).or_default().extend(left);
    }
    // A single backend leaves no choice.
    for alone in backends.values_mut().filter(|backends| backends.len() == 1).flatten() {
        alone.probability = 0;
    }
    let with_backends = |port: &'s ServicePort| {
        let protocol = match port.protocol {
            types::Protocol::Tcp => Protocol::Tcp,
            types::Protocol::Udp => Protocol::Udp,
            types::Protocol::Sctp => return None,
        };
        let local_ips = backends.get(port.name.as_str()).cloned().unwrap_or_default();
        Some(Port {
            port,
            protocol,
            local_ips,
        })
    };
    service.ports.iter().filter_map(with_backends).collect()
}

fn local_ip(settings: &Settings, backend: &Backend, address: Address) -> LocalIp {
    LocalIp {
        vrf_id: vrf_of(settings, address),
        local_ip: address,
        local_port: backend.port,
        probability: if backend.local { settings.local_weight } else { 1 },
    }
}

/// The VRF of a backend.
fn vrf_of(settings: &Settings, backend: Address) -> u32 {
    let is_direct = settings.transport != Transport::Vxlan;
    let is_here = settings.pod_subnet.is_some_and(|subnet| subnet.contains(backend));
    if settings.host_addresses.contains(&backend) || (is_direct && !is_here) {
        settings.main_vrf
    } else {
        settings.pod_vrf
    }
}

/// The IPv4 addresses, in order.
pub(crate) fn v4(texts: &[String], no_addresses: &mut Vec<String>) -> Vec<Address> {
    texts.iter().filter_map(|text| read_v4(text, no_addresses)).collect()
}

fn read_v4(text: &str, no_addresses: &mut Vec<String>) -> Option<Address> {
    let address = Address::parse(text);
    if address.is_none() {
        no_addresses.push(text.to_owned());
    }
    address.filter(|address| address.is_v4())
}
