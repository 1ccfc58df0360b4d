//! Addresses and networks as text, according to the specification of `nodesync`.

use std::net::IpAddr;

/// An IPv4-mapped IPv6 address is the IPv4 address; `None` for invalid text. IPv4 sorts first, then by number.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// The address of a text that may have a prefix length.
pub(crate) fn before_slash(text: &str) -> Option<IpAddr> {
    address(text.split('/').next().unwrap_or_default())
}

/// An address with its network's prefix length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network(IpAddr, u32);

impl Network {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        if address.to_canonical() != address {
            return None;
        }
        let is_plain = length == "0" || !length.starts_with(['0', '+']);
        let length: u32 = length.parse().ok().filter(|_| is_plain)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (length <= longest).then_some(Self(address, length))
    }

    /// The address with its host bits.
    pub(crate) fn address(self) -> IpAddr {
        self.0
    }

    /// Contains no address of the other family.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        /// The address from the highest bit of 128 on.
        fn bits(address: IpAddr) -> u128 {
            match address {
                IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
                IpAddr::V6(address) => address.to_bits(),
            }
        }
        let mask = u128::MAX.checked_shl(128 - self.1).unwrap_or(0);
        self.0.is_ipv4() == address.is_ipv4() && bits(self.0) & mask == bits(address) & mask
    }
}

/// Whether the network in that text contains the address; an invalid text contains nothing.
pub(crate) fn is_in(network: &str, address: IpAddr) -> bool {
    Network::parse(network).is_some_and(|network| network.contains(address))
}

#[test]
fn networks_hold_what_has_their_bits() {
    let four: IpAddr = "10.1.1.9".parse().unwrap();
    for (network, holds) in [
        ("10.1.1.7/24", true),
        ("10.1.1.8/32", false),
        ("0.0.0.0/0", true),
        ("::/0", false),
        ("10.1.1.0/024", false),
        ("10.1.1.0/33", false),
        ("10.1.1.0", false),
        ("", false),
    ] {
        assert_eq!(is_in(network, four), holds, "{network}");
    }
    assert!(is_in("fd00:1::/64", "fd00:1::2".parse().unwrap()));
    assert!(!is_in("fd00:1::/64", "fd00:1:0:1::2".parse().unwrap()));
    assert_eq!(address("::ffff:10.1.1.9"), Some(four));
}
