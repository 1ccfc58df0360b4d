//! The configuration that belongs to no service: interfaces, the address pool, and traffic that must not be translated.
//!
//! Pure.

use trueup_guest::address::Address;

use crate::values::{
    ANY_VRF, DNat44, IdentityMapping, Interface, Nat44Global, PoolAddress, Protocol, VirtualReassembly,
};
use crate::{renderer::IDENTITIES, settings::Settings, uplink::Uplink};

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
    let virtual_reassembly = (settings.drop_fragments).then_some(VirtualReassembly { drop_fragments: true });
    Nat44Global {
        forwarding: true,
        nat_interfaces: frontends.chain(backends).chain(out).collect(),
        address_pool: of_uplink.into_iter().chain(of_loopback).collect(),
        virtual_reassembly,
    }
}
