//! The agent's messages as JSON: members in the order of its protobuf definitions, defaults left out.
//!
//! Pure data with serde; the names are those of the Ligato VPP agent, version 3.

use serde::Serialize;
use trueup_guest::address::Address;

/// The VRF number that means all of them: the largest one.
pub const ANY_VRF: u32 = u32::MAX;

/// `DNat44`
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the message")]
pub struct DNat44 {
    pub label: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub st_mappings: Vec<StaticMapping>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub id_mappings: Vec<IdentityMapping>,
}

/// `DNat44.StaticMapping`
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the message")]
pub struct StaticMapping {
    pub external_ip: Ip,
    pub external_port: u16,
    pub local_ips: Vec<LocalIp>,
    #[serde(skip_serializing_if = "is_default")]
    pub protocol: Protocol,
    pub twice_nat: TwiceNat,
    #[serde(skip_serializing_if = "is_default")]
    pub session_affinity: u32,
}

/// `DNat44.StaticMapping.LocalIP`
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the message")]
pub struct LocalIp {
    #[serde(skip_serializing_if = "is_default")]
    pub vrf_id: u32,
    pub local_ip: Ip,
    #[serde(skip_serializing_if = "is_default")]
    pub local_port: u16,
    #[serde(skip_serializing_if = "is_default")]
    pub probability: u32,
}

/// `DNat44.IdentityMapping`
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the message")]
pub struct IdentityMapping {
    #[serde(skip_serializing_if = "is_default")]
    pub vrf_id: u32,
    pub ip_address: Ip,
    #[serde(skip_serializing_if = "is_default")]
    pub port: u16,
    #[serde(skip_serializing_if = "is_default")]
    pub protocol: Protocol,
}

/// `Nat44Global`
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the message")]
pub struct Nat44Global<'i> {
    pub forwarding: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nat_interfaces: Vec<Interface<'i>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub address_pool: Vec<PoolAddress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_reassembly: Option<VirtualReassembly>,
}

/// `Nat44Global.Interface`
#[derive(Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the message")]
pub struct Interface<'i> {
    #[serde(skip_serializing_if = "is_default")]
    pub name: &'i str,
    #[serde(skip_serializing_if = "is_default")]
    pub is_inside: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub output_feature: bool,
}

/// `Nat44Global.Address`
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the message")]
pub struct PoolAddress {
    pub address: Ip,
    pub vrf_id: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub twice_nat: bool,
}

/// `VirtualReassembly`
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the message")]
pub struct VirtualReassembly {
    pub drop_fragments: bool,
}

/// `DNat44.Protocol`; it has no SCTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names are those of the enum")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
}

/// `DNat44.StaticMapping.TwiceNatMode`, without its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TwiceNat {
    /// Translates the source address too.
    Enabled,
    /// Translates the source only if it is the backend itself.
    #[serde(rename = "SELF")]
    OfSelf,
}

/// An address in the agent's notation.
#[derive(Clone, Copy, Debug)]
pub struct Ip(pub Address);

impl Serialize for Ip {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The message as compact JSON.
#[must_use]
pub fn json(message: &impl Serialize) -> String {
    // Texts, numbers and lists: JSON can represent all of them.
    serde_json::to_string(message).unwrap_or_default()
}
