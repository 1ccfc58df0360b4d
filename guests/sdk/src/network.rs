//! Addresses with their network: `192.168.16.3/24` is both an address and its network.
//!
//! The address keeps its host bits until the caller asks for the network alone. An IPv4-mapped IPv6 address has no
//! network here: whether its prefix length counts from the IPv4 or the IPv6 start would be a guess.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::address::{self, Address};

/// An address and the length of its network prefix in bits. Ordered by address (IPv4 before IPv6, by number), then by
/// prefix length; displayed as `address/length`, with the canonical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network(IpNet);

impl Network {
    /// `None` unless the text is an address, `/`, and a prefix length in decimal digits without leading zero, at most
    /// 32 or 128; `None` for an IPv4-mapped IPv6 address.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        // `0` is a length; `00`, `08`, `+8` and the empty text are none.
        let is_plain = matches!(length.as_bytes(), [b'0'] | [b'1'..=b'9', ..]);
        let is_mapped = address != address.to_canonical();
        let length = length.parse().ok().filter(|_| is_plain && !is_mapped)?;
        IpNet::new(address, length).ok().map(Self)
    }

    /// The address with its host bits.
    pub fn address(self) -> Address {
        self.0.addr().into()
    }

    /// From 0 to 32 or 128.
    pub fn prefix_len(self) -> u8 {
        self.0.prefix_len()
    }

    /// The same with zero host bits: `10.1.2.9/24` becomes `10.1.2.0/24`.
    pub fn without_host_bits(self) -> Self {
        Self(self.0.trunc())
    }

    /// True if the address is in this network: the same family and the same prefix bits.
    pub fn contains(self, address: Address) -> bool {
        self.0.contains(&address.ip())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        address::parsed(deserializer, Self::parse)
    }
}

/// The text before a `/`, if there is one: the address part of an address with network, not parsed yet.
pub fn without_prefix_len(text: &str) -> &str {
    text.split_once('/').map_or(text, |(address, _)| address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn spelled(text: &str) -> Option<String> {
        Network::parse(text).map(|network| network.to_string())
    }

    fn network(text: &str) -> Network {
        Network::parse(text).unwrap_or_else(|| panic!("{text} is no network"))
    }

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap_or_else(|| panic!("{text} is no address"))
    }

    #[test]
    fn host_bits_stay_and_the_address_is_canonical() {
        for (given, expected) in [
            ("192.168.16.3/24", "192.168.16.3/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("10.0.0.1/32", "10.0.0.1/32"),
            ("FD00:0:0::3/64", "fd00::3/64"),
            ("::/0", "::/0"),
            ("fd00::1/128", "fd00::1/128"),
            ("::192.0.2.9/96", "::c000:209/96"),
        ] {
            assert_eq!(spelled(given).as_deref(), Some(expected), "{given}");
        }
    }

    #[test]
    fn what_is_no_address_with_network() {
        for text in [
            "",
            "/",
            "192.168.16.3",
            "192.168.16.3/",
            "/24",
            "192.168.16.3/33",
            "192.168.16.3/024",
            "192.168.16.3/00",
            "192.168.16.3/+8",
            "192.168.16.3/-1",
            "192.168.16.3/ 8",
            "192.168.16.3/8 ",
            "192.168.16.3/8/8",
            "192.168.16.3/256",
            "192.168.16.3/255.0.0.0",
            "192.168.16.03/24",
            "192.168.16/24",
            "fd00::1/129",
            "fd00::1/064",
            "fe80::1%eth0/64",
            "::ffff:192.168.16.3/24",
            "::ffff:192.168.16.3/120",
            "::FFFF:c0a8:1003/120",
            "192.168.16.3/٢",
            "x/24",
        ] {
            assert_eq!(spelled(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_stands_before_the_prefix_length() {
        for (given, expected) in [
            ("10.0.0.1/24", "10.0.0.1"),
            ("10.0.0.1", "10.0.0.1"),
            ("x/y/z", "x"),
            ("/", ""),
            ("", ""),
        ] {
            assert_eq!(without_prefix_len(given), expected);
        }
    }

    #[test]
    fn the_network_alone_has_no_host_bits() {
        for (given, expected) in [
            ("10.1.2.9/24", "10.1.2.0/24"),
            ("10.1.2.9/32", "10.1.2.9/32"),
            ("10.1.2.9/0", "0.0.0.0/0"),
            ("10.255.2.9/9", "10.128.0.0/9"),
            ("fd00:1:2:3:4::9/64", "fd00:1:2:3::/64"),
            ("fd00::9/128", "fd00::9/128"),
            ("fd00::9/0", "::/0"),
        ] {
            assert_eq!(network(given).without_host_bits().to_string(), expected, "{given}");
        }
    }

    #[test]
    fn what_is_in_a_network() {
        for (given, inside, outside) in [
            ("10.1.1.0/24", "10.1.1.255", "10.1.2.0"),
            ("10.1.1.77/24", "10.1.1.1", "10.1.0.255"),
            ("10.1.1.1/32", "::ffff:10.1.1.1", "10.1.1.2"),
            ("0.0.0.0/0", "255.255.255.255", "::"),
            ("::/0", "fd00::1", "10.0.0.1"),
            // A mapped address is IPv4, and so in no IPv6 network.
            ("::/0", "::1", "::ffff:10.0.0.1"),
            ("fd00::/127", "fd00::1", "fd00::2"),
        ] {
            assert!(network(given).contains(address(inside)), "{inside} in {given}");
            assert!(!network(given).contains(address(outside)), "{outside} in {given}");
        }
    }

    #[test]
    fn ipv4_by_number_then_ipv6_by_number_then_by_length() {
        let texts = [
            "10.0.0.9/32",
            "10.0.0.10/8",
            "10.0.0.10/24",
            "::1/128",
            "fd00::a/64",
            "fd00::10/64",
        ];
        let networks = texts.map(network);
        assert!(networks.is_sorted());
        let (mut back, mut turned) = (networks, networks);
        turned.reverse();
        back.sort();
        turned.sort();
        assert_eq!(back, turned);
    }

    fn any_network() -> impl Strategy<Value = Network> {
        let v4 = (any::<u32>(), 0..=32_u8).prop_map(|(bits, length)| format!("{}/{length}", Ipv4Addr::from_bits(bits)));
        let v6 =
            (any::<u128>(), 0..=128_u8).prop_map(|(bits, length)| format!("{}/{length}", Ipv6Addr::from_bits(bits)));
        prop_oneof![v4, v6].prop_filter_map("mapped", |text| Network::parse(&text))
    }

    proptest! {
        #[test]
        fn a_spelling_reads_back_as_the_same_network(network in any_network()) {
            prop_assert_eq!(Network::parse(&network.to_string()), Some(network));
        }

        #[test]
        fn a_network_contains_exactly_what_has_its_first_bits(network in any_network(), flipped in 0..128_u8) {
            let (text, bits) = match network.address().ip() {
                IpAddr::V4(ip) => (Ipv4Addr::from_bits(ip.to_bits() ^ (1 << (31 - flipped % 32))).to_string(), 32),
                IpAddr::V6(ip) => (Ipv6Addr::from_bits(ip.to_bits() ^ (1 << (127 - flipped))).to_string(), 128),
            };
            prop_assert_eq!(network.contains(address(&text)), flipped % bits >= network.prefix_len());
            prop_assert!(network.contains(network.address()));
            prop_assert!(network.contains(network.without_host_bits().address()));
        }

        #[test]
        fn without_host_bits_is_the_least_address_of_the_network(network in any_network()) {
            let least = network.without_host_bits();
            prop_assert_eq!(least.without_host_bits(), least);
            prop_assert!(least.address() <= network.address());
            prop_assert_eq!((least.prefix_len(), least.address().is_v4()), (network.prefix_len(), network.address().is_v4()));
        }

        #[test]
        fn any_text_is_read_without_a_fault(text in ".*|[0-9a-f:.]*/[0-9+ ]*") {
            if let Some(network) = Network::parse(&text) {
                prop_assert_eq!(Network::parse(&network.to_string()), Some(network));
            }
        }
    }
}
