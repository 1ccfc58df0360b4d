//! The operator's settings and their defaults, and the interface out of the cluster that follows from them.

use std::collections::BTreeSet;

use serde_json::Value;
use trueup_guest::address::Address;
use trueup_guest::network::Network;
use trueup_guest::settings::Given;

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
    /// True if packets between nodes travel in VXLAN; else unchanged, or in IPv6 segments.
    pub(crate) has_overlay: bool,
    /// `None` contains nothing.
    pub(crate) pod_subnet: Option<Network>,
    /// `node_ip` and `host_ips`
    pub(crate) host_addresses: BTreeSet<Address>,
    /// The default interface.
    pub(crate) uplink: Option<Uplink>,
    /// `disable_nat_virtual_reassembly`
    pub(crate) drop_fragments: bool,
}

const LABEL: &str = "a text that is not empty and has no /";
const V4: &str = "an IPv4 address";
const NETWORK_OR_EMPTY: &str = "an IPv4 address with prefix length, or empty";
const INTERFACES: &str = r#"a list of {"name":TEXT,"addresses":[IPv4 addresses with prefix length]}, no name empty"#;
/// The largest number means every VRF.
const VRF_MAX: u64 = 4_294_967_294;

impl Settings {
    /// Parses the JSON object of `lifecycle.init`.
    ///
    /// # Errors
    /// The first wrong setting by name, else the first missing one.
    pub(crate) fn read(config: &str) -> Result<Self, String> {
        let mut given = Given::read(config)?;
        let snat_only = given.truth("snat_only").unwrap_or_default();
        given.require("agent_label", LABEL);
        if !snat_only {
            given.require("nat_loopback_ip", V4);
        }
        let transports = [("vxlan", true), ("nooverlay", false), ("srv6", false)];
        let has_overlay = given.word("node_to_node_transport", &transports).unwrap_or(true);
        let node_ip = given.text("node_ip", NETWORK_OR_EMPTY, or_empty(network)).flatten();
        let host_ips = given.value("host_ips", "a list of addresses", addresses);
        let mut host_addresses: BTreeSet<Address> = host_ips.unwrap_or_default();
        host_addresses.extend(node_ip.map(Network::address));
        let pod_subnet = given.text("pod_subnet_this_node", NETWORK_OR_EMPTY, or_empty(network));
        let settings = Self {
            agent_label: given.text("agent_label", LABEL, label).unwrap_or_default(),
            snat_only,
            loopback: given.text("nat_loopback_ip", V4, v4).filter(|_| !snat_only),
            local_weight: given.whole("service_local_endpoint_weight", 1..=255).unwrap_or(1),
            main_vrf: given.whole("main_vrf_id", 0..=VRF_MAX).unwrap_or(0),
            pod_vrf: given.whole("pod_vrf_id", 0..=VRF_MAX).unwrap_or(1),
            has_overlay,
            pod_subnet: pod_subnet.flatten(),
            host_addresses,
            uplink: Uplink::read(&mut given, node_ip, has_overlay),
            drop_fragments: given.truth("disable_nat_virtual_reassembly").unwrap_or_default(),
        };
        given.end(settings)
    }
}

/// The interface that leads out of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    /// Its name.
    pub(crate) interface: String,
    /// The source address of traffic that leaves through it.
    pub(crate) address: Address,
}

impl Uplink {
    /// `None` if nothing must be translated, or no interface is known to lead out.
    fn read(given: &mut Given, node_ip: Option<Network>, has_overlay: bool) -> Option<Self> {
        let is_translated = given.truth("nat_external_traffic").unwrap_or(true);
        let is_stn = given.truth("stn_mode").unwrap_or_default();
        let has_dhcp = given.truth("use_dhcp").unwrap_or_default();
        let gateway = given.text("default_gateway", "an IPv4 address, or empty", or_empty(v4));
        let others = given
            .value("other_interfaces", INTERFACES, interfaces)
            .unwrap_or_default();
        let main_name = given.text("main_interface", "a text", |text| Some(text.to_owned()));
        let main_name = main_name.unwrap_or_default();
        let main = node_ip.filter(|_| !main_name.is_empty());
        let main = main.map(|network| (&main_name, network));
        // With these, the main interface is the uplink, whatever the gateway.
        let uplink = if is_stn || has_dhcp {
            main
        } else {
            let gateway = gateway.flatten()?;
            let others = others.iter();
            let others = others.flat_map(|(name, networks)| networks.iter().map(move |&network| (name, network)));
            let mut networks = main.into_iter().chain(others);
            networks.find(|(_, network)| network.contains(gateway))
        };
        // Without encapsulation, traffic between nodes leaves there too, and must stay untranslated.
        let leads_out = |name: &String| is_translated && (has_overlay || *name != main_name);
        let (interface, network) = uplink.filter(|(name, _)| leads_out(name))?;
        Some(Self {
            interface: interface.clone(),
            address: network.address(),
        })
    }
}

fn label(text: &str) -> Option<String> {
    (!text.is_empty() && !text.contains('/')).then(|| text.to_owned())
}

/// Also reads the empty text, as `None`.
fn or_empty<T>(read: fn(&str) -> Option<T>) -> impl FnOnce(&str) -> Option<Option<T>> {
    move |text| {
        if text.is_empty() {
            Some(None)
        } else {
            read(text).map(Some)
        }
    }
}

fn v4(text: &str) -> Option<Address> {
    Address::parse(text).filter(|address| address.is_v4())
}

fn network(text: &str) -> Option<Network> {
    Network::parse(text).filter(|network| network.address().is_v4())
}

fn addresses(value: &Value) -> Option<BTreeSet<Address>> {
    let texts = value.as_array()?.iter();
    texts.map(|text| Address::parse(text.as_str()?)).collect()
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

    /// These settings, with those members of others.
    fn with(config: &str, members: &str) -> String {
        let mut config: Value = serde_json::from_str(config).unwrap();
        let members: Value = serde_json::from_str(members).unwrap();
        for (name, value) in members.as_object().unwrap() {
            config[name] = value.clone();
        }
        config.to_string()
    }

    /// Adds the required settings if they are missing.
    fn read(members: &str) -> Result<Settings, String> {
        Settings::read(&with(LEAST, members))
    }

    /// Main interface, other interfaces, both towards the gateway.
    const WIRING: &str = r#"{"main_interface": "main", "node_ip": "192.168.16.10/24", "default_gateway": "192.168.16.1",
        "other_interfaces": [{"name": "none", "addresses": []}, {"name": "far", "addresses": ["10.8.0.2/24"]},
        {"name": "near", "addresses": ["10.9.0.2/24", "192.168.0.3/16", "192.168.16.3/24"]},
        {"name": "nearer", "addresses": ["192.168.16.4/24"]}]}"#;

    /// The uplink of a node wired like this but for these members.
    fn uplink(members: &str) -> Option<String> {
        let settings = read(&with(WIRING, members)).unwrap();
        settings
            .uplink
            .map(|uplink| format!("{} {}", uplink.interface, uplink.address))
    }

    #[test]
    fn the_main_interface_where_the_gateway_is_in_its_network() {
        assert_eq!(uplink("{}").as_deref(), Some("main 192.168.16.10"));
    }

    #[test]
    fn else_the_first_other_one_with_its_first_address_that_fits() {
        for members in [
            r#"{"node_ip": ""}"#,
            r#"{"node_ip": "10.7.0.1/24"}"#,
            r#"{"main_interface": ""}"#,
        ] {
            assert_eq!(uplink(members).as_deref(), Some("near 192.168.0.3"), "{members}");
        }
        assert_eq!(uplink(r#"{"default_gateway": "10.5.0.1"}"#), None);
    }

    #[test]
    fn without_a_gateway_only_where_it_is_certain() {
        for (members, expected) in [
            ("{}", None),
            (r#"{"stn_mode": true}"#, Some("main 192.168.16.10")),
            (r#"{"use_dhcp": true}"#, Some("main 192.168.16.10")),
            (r#"{"stn_mode": true, "node_ip": ""}"#, None),
            (r#"{"stn_mode": true, "main_interface": ""}"#, None),
        ] {
            let members = with(members, r#"{"default_gateway": ""}"#);
            assert_eq!(uplink(&members).as_deref(), expected, "{members}");
        }
    }

    #[test]
    fn no_uplink_where_it_is_switched_off() {
        assert_eq!(uplink(r#"{"nat_external_traffic": false}"#), None);
    }

    #[test]
    fn without_an_overlay_not_the_main_one() {
        for (members, expected) in [
            ("{}", None),
            (r#"{"stn_mode": true}"#, None),
            (r#"{"node_ip": ""}"#, Some("near 192.168.0.3")),
        ] {
            let members = with(members, r#"{"node_to_node_transport": "nooverlay"}"#);
            assert_eq!(uplink(&members).as_deref(), expected, "{members}");
        }
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
            has_overlay: true,
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
        let unknown = Settings::read(r#"{"x": 1}"#).unwrap_err();
        let (_, names) = unknown.split_once("the settings are ").unwrap();
        assert!(
            names.split(", ").all(|name| given.get(name).is_some()),
            "something of {names} is not set"
        );
        let expected = Settings {
            agent_label: "a".to_owned(),
            snat_only: false,
            loopback: Some(address("10.1.1.254")),
            local_weight: 255,
            main_vrf: u32::MAX - 1,
            pod_vrf: 0,
            has_overlay: false,
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
