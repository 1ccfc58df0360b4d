//! The DNAT of a service: which address and port lead to which backends.
//!
//! Pure but for the log: leaves out invalid addresses with a warning, and IPv6 addresses silently.

use std::collections::BTreeMap;

use trueup_guest::address::Address;

use crate::bindings::trueup::service::types::{Backend, ContivService, ServicePort, TrafficPolicy};
use crate::values::{DNat44, LocalIp, Protocol, StaticMapping, TwiceNat};
use crate::{bindings::trueup::kube::types, renderer::label, settings::Settings, world::World};

/// The DNAT.
pub(crate) fn of_service(
    world: &mut impl World,
    settings: &Settings,
    node_ips: &[Address],
    service: &ContivService,
) -> DNat44 {
    let label = label(&service.id);
    let cluster_ips = v4(world, &label, &service.cluster_ips);
    let external_ips = v4(world, &label, &service.external_ips);
    let ports = ports(world, &label, settings, service);
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
            let reached = (ports.iter()).filter(|(port, _, local_ips)| number(port) != 0 && !local_ips.is_empty());
            st_mappings.extend(reached.map(|(port, protocol, local_ips)| StaticMapping {
                external_ip: address,
                external_port: number(port),
                local_ips: local_ips.clone(),
                protocol: *protocol,
                twice_nat,
                session_affinity: service.session_affinity_timeout_s,
            }));
        }
    }
    DNat44 {
        label,
        st_mappings,
        id_mappings: Vec::new(),
    }
}

/// Addresses of one kind, the number of a port on them, and the translation of the source.
type Kind<'a> = (&'a [Address], fn(&ServicePort) -> u16, TwiceNat);

/// A port with its protocol and the remaining backends.
type Port<'s> = (&'s ServicePort, Protocol, Vec<LocalIp>);

/// In the order given, without protocols that the agent does not have.
fn ports<'s>(world: &mut impl World, label: &str, settings: &Settings, service: &'s ContivService) -> Vec<Port<'s>> {
    let mut backends: BTreeMap<&str, Vec<LocalIp>> = BTreeMap::new();
    for of_port in &service.backends {
        let left = of_port.backends.iter().filter_map(|backend| {
            let address = read_v4(world, label, &backend.ip)?;
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
        Some((port, protocol, local_ips))
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
    let is_here = settings.pod_subnet.is_some_and(|subnet| subnet.contains(backend));
    if settings.host_addresses.contains(&backend) || (!settings.has_overlay && !is_here) {
        settings.main_vrf
    } else {
        settings.pod_vrf
    }
}

/// The IPv4 addresses, in order. `of` is what they belong to.
pub(crate) fn v4(world: &mut impl World, of: &str, texts: &[String]) -> Vec<Address> {
    texts.iter().filter_map(|text| read_v4(world, of, text)).collect()
}

fn read_v4(world: &mut impl World, of: &str, text: &str) -> Option<Address> {
    let fields = [("of", of), ("address", text)];
    let address = world.or_warn(Address::parse(text), "left out what is no address", &fields);
    address.filter(|address| address.is_v4())
}
