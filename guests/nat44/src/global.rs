//! The configuration that belongs to no service: interfaces, the address pool, and traffic that must not be translated.
//!
//! Pure.

use trueup_guest::address::Address;

use crate::values::{
    ANY_VRF, DNat44, IdentityMapping, Interface, Nat44Global, PoolAddress, Protocol, VirtualReassembly,
};
use crate::{renderer::IDENTITIES, settings::Settings};

/// The destination port of VXLAN packets (RFC 7348).
const VXLAN_PORT: u16 = 4789;

/// Keeps VXLAN and the node's own traffic untranslated.
pub(crate) fn identities(settings: &Settings) -> DNat44 {
    let mapping = |address: Address, vrf_id: u32, port: u16| IdentityMapping {
        vrf_id,
        ip_address: address,
        port,
        protocol: Protocol::Udp,
    };
    let id_mappings = match &settings.uplink {
        None => Vec::new(),
        Some(uplink) => vec![
            mapping(uplink.address, settings.main_vrf, VXLAN_PORT),
            mapping(uplink.address, settings.pod_vrf, 0),
            mapping(uplink.address, settings.main_vrf, 0),
        ],
    };
    DNat44 {
        label: IDENTITIES.to_owned(),
        st_mappings: Vec::new(),
        id_mappings,
    }
}

/// `Nat44Global` with these interfaces, in the order received.
pub(crate) fn global<'i>(settings: &'i Settings, frontends: &'i [String], backends: &'i [String]) -> Nat44Global<'i> {
    let uplink = settings.uplink.as_ref();
    let is_uplink = |name: &str| uplink.is_some_and(|uplink| uplink.interface == name);
    let frontends = frontends.iter().filter(|name| !is_uplink(name)).map(|name| Interface {
        name,
        ..Interface::default()
    });
    let backends = backends.iter().map(|name| Interface {
        name,
        is_inside: true,
        ..Interface::default()
    });
    let out = uplink.map(|uplink| Interface {
        name: &uplink.interface,
        output_feature: true,
        ..Interface::default()
    });
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
