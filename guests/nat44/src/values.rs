//! The agent's messages as JSON: members in the order of its protobuf definitions, defaults left out.
//!
//! Pure data with serde; the names are those of the Ligato VPP agent, version 3.

use serde::Serialize;
use trueup_guest::address::Address;

/// The VRF number that means all of them: the largest one.
pub(crate) const ANY_VRF: u32 = u32::MAX;

/// `DNat44`
#[derive(Debug, Serialize)]
pub(crate) struct DNat44 {
    pub(crate) label: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) st_mappings: Vec<StaticMapping>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) id_mappings: Vec<IdentityMapping>,
}

/// `DNat44.StaticMapping`
#[derive(Debug, Serialize)]
pub(crate) struct StaticMapping {
    pub(crate) external_ip: Address,
    pub(crate) external_port: u16,
    pub(crate) local_ips: Vec<LocalIp>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) protocol: Protocol,
    pub(crate) twice_nat: TwiceNat,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) session_affinity: u32,
}

/// `DNat44.StaticMapping.LocalIP`
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LocalIp {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) vrf_id: u32,
    pub(crate) local_ip: Address,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) local_port: u16,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) probability: u32,
}

/// `DNat44.IdentityMapping`
#[derive(Debug, Serialize)]
pub(crate) struct IdentityMapping {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) vrf_id: u32,
    pub(crate) ip_address: Address,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) port: u16,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) protocol: Protocol,
}

/// `Nat44Global`
#[derive(Debug, Serialize)]
pub(crate) struct Nat44Global<'i> {
    pub(crate) forwarding: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nat_interfaces: Vec<Interface<'i>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) address_pool: Vec<PoolAddress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) virtual_reassembly: Option<VirtualReassembly>,
}

/// `Nat44Global.Interface`
#[derive(Debug, Serialize)]
pub(crate) struct Interface<'i> {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) name: &'i str,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) is_inside: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) output_feature: bool,
}

/// `Nat44Global.Address`
#[derive(Debug, Serialize)]
pub(crate) struct PoolAddress {
    pub(crate) address: Address,
    pub(crate) vrf_id: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) twice_nat: bool,
}

/// `VirtualReassembly`
#[derive(Debug, Serialize)]
pub(crate) struct VirtualReassembly {
    pub(crate) drop_fragments: bool,
}

/// `DNat44.Protocol`; it has no SCTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Protocol {
    #[default]
    Tcp,
    Udp,
}

/// `DNat44.StaticMapping.TwiceNatMode`, without its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum TwiceNat {
    /// Translates the source address too.
    Enabled,
    /// Translates the source only if it is the backend itself.
    #[serde(rename = "SELF")]
    OfSelf,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
