//! The operator's settings and their defaults.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use trueup_guest::address::Address;
use trueup_guest::network::Network;
use trueup_guest::settings::{self, Allowed, Given};

use crate::uplink::{Transport, Uplink, Wiring};

/// The guest's settings, and what follows from them alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Not empty, no `/`.
    pub(crate) agent_label: String,
    /// True if another renderer handles services.
    pub(crate) snat_only: bool,
    /// The source address of connections whose backend's answer would bypass the translation. `None` with `snat_only`.
    pub(crate) loopback: Option<Address>,
    /// How many times more often a local backend is chosen than another.
    pub(crate) local_weight: u32,
    /// The VRF of the host.
    pub(crate) main_vrf: u32,
    /// The VRF of pods.
    pub(crate) pod_vrf: u32,
    /// Between nodes.
    pub(crate) transport: Transport,
    /// `None` contains nothing.
    pub(crate) pod_subnet: Option<Network>,
    /// `node_ip` and `host_ips`
    pub(crate) host_addresses: BTreeSet<Address>,
    /// The default interface.
    pub(crate) uplink: Option<Uplink>,
    /// `disable_nat_virtual_reassembly`
    pub(crate) drop_fragments: bool,
}

const AGENT_LABEL: &str = "agent_label";
const SNAT_ONLY: &str = "snat_only";
const NAT_EXTERNAL: &str = "nat_external_traffic";
const LOOPBACK: &str = "nat_loopback_ip";
const WEIGHT: &str = "service_local_endpoint_weight";
const MAIN_VRF: &str = "main_vrf_id";
const POD_VRF: &str = "pod_vrf_id";
const TRANSPORT: &str = "node_to_node_transport";
const POD_SUBNET: &str = "pod_subnet_this_node";
const NODE_IP: &str = "node_ip";
const HOST_IPS: &str = "host_ips";
const MAIN_INTERFACE: &str = "main_interface";
const OTHER_INTERFACES: &str = "other_interfaces";
const GATEWAY: &str = "default_gateway";
const STN_MODE: &str = "stn_mode";
const USE_DHCP: &str = "use_dhcp";
const DROP_FRAGMENTS: &str = "disable_nat_virtual_reassembly";

const LABEL: Allowed = Allowed::Text("a text that is not empty and has no /", |text| {
    !text.is_empty() && !text.contains('/')
});
const V4: Allowed = Allowed::Text("an IPv4 address", |text| v4(text).is_some());
const V4_OR_EMPTY: Allowed = Allowed::Text("an IPv4 address, or empty", |text| {
    text.is_empty() || v4(text).is_some()
});
const NETWORK_OR_EMPTY: Allowed = Allowed::Text("an IPv4 address with prefix length, or empty", |text| {
    text.is_empty() || network(text).is_some()
});
/// All but the largest number, which means every VRF.
const VRF: Allowed = Allowed::Whole(0, 4_294_967_294);
const TRANSPORTS: &[&str] = &["vxlan", "nooverlay", "srv6"];

fn allowed() -> BTreeMap<&'static str, Allowed> {
    BTreeMap::from([
        (AGENT_LABEL, LABEL),
        (SNAT_ONLY, Allowed::Truth),
        (NAT_EXTERNAL, Allowed::Truth),
        (LOOPBACK, V4),
        (WEIGHT, Allowed::Whole(1, 255)),
        (MAIN_VRF, VRF),
        (POD_VRF, VRF),
        (TRANSPORT, Allowed::Word(TRANSPORTS)),
        (POD_SUBNET, NETWORK_OR_EMPTY),
        (NODE_IP, NETWORK_OR_EMPTY),
        (
            HOST_IPS,
            Allowed::Value("a list of addresses", |value| addresses(value).is_some()),
        ),
        (MAIN_INTERFACE, Allowed::Text("a text", |_| true)),
        (
            OTHER_INTERFACES,
            Allowed::Value(
                r#"a list of {"name":TEXT,"addresses":[IPv4 addresses with prefix length]}, no name empty"#,
                |value| interfaces(value).is_some(),
            ),
        ),
        (GATEWAY, V4_OR_EMPTY),
        (STN_MODE, Allowed::Truth),
        (USE_DHCP, Allowed::Truth),
        (DROP_FRAGMENTS, Allowed::Truth),
    ])
}

impl Settings {
    /// Parses the JSON object of `lifecycle.init`.
    ///
    /// # Errors
    /// The first wrong setting by name, else the first missing one.
    pub(crate) fn read(config: &str) -> Result<Self, String> {
        let given = settings::read(config, &allowed())?;
        let is = |name: &str| given.truth(name).unwrap_or_default();
        let agent_label = given
            .word(AGENT_LABEL)
            .ok_or_else(|| settings::missing(AGENT_LABEL, LABEL))?;
        let snat_only = is(SNAT_ONLY);
        let loopback = given.word(LOOPBACK).and_then(v4);
        if loopback.is_none() && !snat_only {
            return Err(settings::missing(LOOPBACK, V4));
        }
        let transport = match given.word(TRANSPORT) {
            Some("nooverlay") => Transport::NoOverlay,
            Some("srv6") => Transport::Srv6,
            _ => Transport::Vxlan,
        };
        let node_ip = given.word(NODE_IP).and_then(network);
        let mut host_addresses: BTreeSet<Address> = given
            .value(HOST_IPS)
            .and_then(addresses)
            .unwrap_or_default()
            .into_iter()
            .collect();
        host_addresses.extend(node_ip.map(Network::address));
        let wiring = Wiring {
            nat_external_traffic: given.truth(NAT_EXTERNAL).unwrap_or(true),
            is_main_for_certain: is(STN_MODE) || is(USE_DHCP),
            main_interface: given.word(MAIN_INTERFACE).unwrap_or_default().to_owned(),
            node_ip,
            other_interfaces: given.value(OTHER_INTERFACES).and_then(interfaces).unwrap_or_default(),
            default_gateway: given.word(GATEWAY).and_then(v4),
            transport,
        };
        Ok(Self {
            agent_label: agent_label.to_owned(),
            snat_only,
            loopback: loopback.filter(|_| !snat_only),
            local_weight: number(&given, WEIGHT, 1),
            main_vrf: number(&given, MAIN_VRF, 0),
            pod_vrf: number(&given, POD_VRF, 1),
            transport,
            pod_subnet: given.word(POD_SUBNET).and_then(network),
            host_addresses,
            uplink: wiring.uplink(),
            drop_fragments: is(DROP_FRAGMENTS),
        })
    }
}

fn number(given: &Given, name: &str, default: u32) -> u32 {
    given
        .whole(name)
        .and_then(|number| u32::try_from(number).ok())
        .unwrap_or(default)
}

fn v4(text: &str) -> Option<Address> {
    Address::parse(text).filter(|address| address.is_v4())
}

fn network(text: &str) -> Option<Network> {
    Network::parse(text).filter(|network| network.is_v4())
}

fn addresses(value: &Value) -> Option<Vec<Address>> {
    value
        .as_array()?
        .iter()
        .map(|text| Address::parse(text.as_str()?))
        .collect()
}

fn interfaces(value: &Value) -> Option<Vec<(String, Vec<Network>)>> {
    value.as_array()?.iter().map(interface).collect()
}

fn interface(value: &Value) -> Option<(String, Vec<Network>)> {
    let members = value.as_object().filter(|members| members.len() == 2)?;
    let name = members.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let addresses = members.get("addresses")?.as_array()?.iter();
    let networks = addresses.map(|text| network(text.as_str()?)).collect::<Option<_>>()?;
    Some((name.to_owned(), networks))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = r#"{"agent_label": "a", "nat_loopback_ip": "10.1.1.254"}"#;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    /// Adds the required settings if they are missing.
    fn read(members: &str) -> Result<Settings, String> {
        let mut config: Value = serde_json::from_str(LEAST).unwrap();
        let members: Value = serde_json::from_str(members).unwrap();
        for (name, value) in members.as_object().unwrap() {
            config[name] = value.clone();
        }
        Settings::read(&config.to_string())
    }

    #[test]
    fn what_holds_where_nothing_is_set() {
        let expected = Settings {
            agent_label: "a".to_owned(),
            snat_only: false,
            loopback: Some(address("10.1.1.254")),
            local_weight: 1,
            main_vrf: 0,
            pod_vrf: 1,
            transport: Transport::Vxlan,
            pod_subnet: None,
            host_addresses: BTreeSet::new(),
            uplink: None,
            drop_fragments: false,
        };
        assert_eq!(Settings::read(LEAST), Ok(expected));
    }

    #[test]
    fn everything_can_be_set() {
        let config = r#"{"agent_label": "a", "snat_only": false, "nat_external_traffic": true,
            "nat_loopback_ip": "10.1.1.254", "service_local_endpoint_weight": 255, "main_vrf_id": 4294967294,
            "pod_vrf_id": 0, "node_to_node_transport": "srv6", "pod_subnet_this_node": "10.1.1.9/24",
            "node_ip": "192.168.16.10/24", "host_ips": ["172.30.1.1", "fd00::1"], "main_interface": "GbE",
            "other_interfaces": [{"name": "GbE2", "addresses": ["10.9.0.2/16"]}], "default_gateway": "10.9.0.1",
            "stn_mode": false, "use_dhcp": false, "disable_nat_virtual_reassembly": true}"#;
        let given: Value = serde_json::from_str(config).unwrap();
        assert!(
            allowed().keys().all(|name| given.get(name).is_some()),
            "something is not set"
        );
        let expected = Settings {
            agent_label: "a".to_owned(),
            snat_only: false,
            loopback: Some(address("10.1.1.254")),
            local_weight: 255,
            main_vrf: u32::MAX - 1,
            pod_vrf: 0,
            transport: Transport::Srv6,
            pod_subnet: Network::parse("10.1.1.9/24"),
            host_addresses: BTreeSet::from(["172.30.1.1", "fd00::1", "192.168.16.10"].map(address)),
            uplink: Some(Uplink {
                interface: "GbE2".to_owned(),
                address: address("10.9.0.2"),
            }),
            drop_fragments: true,
        };
        assert_eq!(Settings::read(config), Ok(expected));
    }

    #[test]
    fn empty_is_as_not_set_where_it_may_be_empty() {
        let empty = r#"{"pod_subnet_this_node": "", "node_ip": "", "main_interface": "", "default_gateway": "",
            "host_ips": [], "other_interfaces": []}"#;
        assert_eq!(read(empty), Settings::read(LEAST));
    }

    #[test]
    fn what_must_be_set() {
        assert_eq!(
            Settings::read(r#"{"nat_loopback_ip": "10.1.1.254"}"#),
            Err("agent_label: was not set, must be a text that is not empty and has no /".to_owned())
        );
        assert_eq!(
            Settings::read(r#"{"agent_label": "a"}"#),
            Err("nat_loopback_ip: was not set, must be an IPv4 address".to_owned())
        );
        let alone = Settings::read(r#"{"agent_label": "a", "snat_only": true}"#).unwrap();
        assert_eq!((alone.snat_only, alone.loopback), (true, None));
        assert_eq!(read(r#"{"snat_only": true}"#), Ok(alone));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let network = "must be an IPv4 address with prefix length, or empty";
        for (members, error) in [
            (
                r#"{"agent_label": "a/b"}"#,
                r#"agent_label: was "a/b", must be a text that is not empty and has no /"#,
            ),
            (
                r#"{"agent_label": ""}"#,
                r#"agent_label: was "", must be a text that is not empty and has no /"#,
            ),
            (r#"{"snat_only": 1}"#, "snat_only: was 1, must be true or false"),
            (
                r#"{"nat_loopback_ip": ""}"#,
                r#"nat_loopback_ip: was "", must be an IPv4 address"#,
            ),
            (
                r#"{"nat_loopback_ip": "fd00::1"}"#,
                r#"nat_loopback_ip: was "fd00::1", must be an IPv4 address"#,
            ),
            (
                r#"{"service_local_endpoint_weight": 0}"#,
                "service_local_endpoint_weight: was 0, must be a whole number from 1 to 255",
            ),
            (
                r#"{"main_vrf_id": 4294967295}"#,
                "main_vrf_id: was 4294967295, must be a whole number from 0 to 4294967294",
            ),
            (
                r#"{"pod_vrf_id": -1}"#,
                "pod_vrf_id: was -1, must be a whole number from 0 to 4294967294",
            ),
            (
                r#"{"node_to_node_transport": "ipip"}"#,
                r#"node_to_node_transport: was "ipip", must be "vxlan" or "nooverlay" or "srv6""#,
            ),
            (
                r#"{"pod_subnet_this_node": "10.1.1.0"}"#,
                &format!(r#"pod_subnet_this_node: was "10.1.1.0", {network}"#),
            ),
            (
                r#"{"node_ip": "fd00::1/64"}"#,
                &format!(r#"node_ip: was "fd00::1/64", {network}"#),
            ),
            (
                r#"{"host_ips": ["a"]}"#,
                r#"host_ips: was ["a"], must be a list of addresses"#,
            ),
            (
                r#"{"host_ips": "10.0.0.1"}"#,
                r#"host_ips: was "10.0.0.1", must be a list of addresses"#,
            ),
            (
                r#"{"main_interface": null}"#,
                "main_interface: was null, must be a text",
            ),
            (
                r#"{"default_gateway": "gw"}"#,
                r#"default_gateway: was "gw", must be an IPv4 address, or empty"#,
            ),
        ] {
            assert_eq!(read(members), Err(error.to_owned()), "{members}");
        }
        let error = read(r#"{"labels": 1}"#).unwrap_err();
        assert!(
            error.starts_with("labels: was 1, must not be set: the settings are agent_label, "),
            "{error}"
        );
    }

    #[test]
    fn an_interface_has_a_name_and_addresses_and_nothing_else() {
        for entry in [
            "1",
            r#"{"name": "", "addresses": []}"#,
            r#"{"name": "a"}"#,
            r#"{"addresses": []}"#,
            r#"{"name": "a", "addresses": [], "mtu": 1}"#,
            r#"{"name": "a", "addresses": ["10.0.0.1"]}"#,
            r#"{"name": "a", "addresses": ["fd00::1/64"]}"#,
            r#"{"name": "a", "addresses": "10.0.0.1/24"}"#,
        ] {
            let error = read(&format!(r#"{{"other_interfaces": [{entry}]}}"#)).unwrap_err();
            assert!(error.starts_with("other_interfaces: was ["), "{entry}: {error}");
        }
    }
}
