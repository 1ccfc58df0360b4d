//! The DNAT of a service: which address and port lead to which backends. And the configuration that belongs to no
//! service: interfaces, the address pool, and traffic that must not be translated.
//!
//! Pure but for the log: leaves out invalid addresses with a warning, and IPv6 addresses silently.

use std::collections::BTreeMap;

use trueup_guest::address::Address;

use crate::bindings::trueup::kube::types;
use crate::bindings::trueup::service::types::{ContivService, ServicePort, TrafficPolicy};
use crate::renderer::{IDENTITIES, label};
use crate::settings::{Settings, Uplink};
use crate::values::{
    ANY_VRF, DNat44, IdentityMapping, Interface, LocalIp, Nat44Global, PoolAddress, Protocol, StaticMapping, TwiceNat,
    VirtualReassembly,
};
use crate::world::World;

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
            let reached = ports.iter().filter(|(port, ..)| number(port) != 0);
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

/// In the order given, without ports that have no backends, or a protocol that the agent does not have.
fn ports<'s>(world: &mut impl World, label: &str, settings: &Settings, service: &'s ContivService) -> Vec<Port<'s>> {
    let mut backends: BTreeMap<&str, Vec<LocalIp>> = BTreeMap::new();
    for of_port in &service.backends {
        let left = of_port.backends.iter().filter_map(|backend| {
            let address = read_v4(world, label, &backend.ip)?;
            let is_reached = service.traffic_policy == TrafficPolicy::ClusterWide || backend.local;
            is_reached.then(|| LocalIp {
                vrf_id: vrf_of(settings, address),
                local_ip: address,
                local_port: backend.port,
                probability: if backend.local { settings.local_weight } else { 1 },
            })
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
        let local_ips = backends.get(port.name.as_str())?.clone();
        Some((port, protocol, local_ips)).filter(|(_, _, local_ips)| !local_ips.is_empty())
    };
    service.ports.iter().filter_map(with_backends).collect()
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

/// The destination port of VXLAN packets (RFC 7348).
const VXLAN_PORT: u16 = 4789;

/// Keeps VXLAN and the node's own traffic untranslated.
pub(crate) fn identities(settings: &Settings) -> DNat44 {
    let ports = [
        (settings.main_vrf, VXLAN_PORT),
        (settings.pod_vrf, 0),
        (settings.main_vrf, 0),
    ];
    let of_uplink = |uplink: &Uplink| {
        let ip_address = uplink.address;
        ports.map(|(vrf_id, port)| IdentityMapping {
            vrf_id,
            ip_address,
            port,
            protocol: Protocol::Udp,
        })
    };
    DNat44 {
        label: IDENTITIES.to_owned(),
        st_mappings: Vec::new(),
        id_mappings: settings.uplink.iter().flat_map(of_uplink).collect(),
    }
}

/// `Nat44Global` with these interfaces, in the order received.
pub(crate) fn global<'i>(settings: &'i Settings, frontends: &'i [String], backends: &'i [String]) -> Nat44Global<'i> {
    let uplink = settings.uplink.as_ref();
    let is_uplink = |name: &str| uplink.is_some_and(|uplink| uplink.interface == name);
    let interface = |name: &'i String, is_inside, output_feature| Interface {
        name,
        is_inside,
        output_feature,
    };
    let frontends = frontends.iter().filter(|name| !is_uplink(name));
    let frontends = frontends.map(|name| interface(name, false, false));
    let backends = backends.iter().map(|name| interface(name, true, false));
    let out = uplink.map(|uplink| interface(&uplink.interface, false, true));
    let pool = |address: Address, twice_nat: bool| PoolAddress {
        address,
        vrf_id: ANY_VRF,
        twice_nat,
    };
    let of_uplink = uplink.map(|uplink| pool(uplink.address, false));
    let of_loopback = settings.loopback.map(|address| pool(address, true));
    Nat44Global {
        forwarding: true,
        nat_interfaces: frontends.chain(backends).chain(out).collect(),
        address_pool: of_uplink.into_iter().chain(of_loopback).collect(),
        virtual_reassembly: settings
            .drop_fragments
            .then_some(VirtualReassembly { drop_fragments: true }),
    }
}
