//! IP addresses as numbers: one address has one value and one spelling, however it was written.
//!
//! An IPv4-mapped IPv6 address is the IPv4 address in every respect. Names, zones, brackets, prefix lengths and blanks
//! are no part of an address.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::text;

/// An IP address. Ordered by number, IPv4 before IPv6; displayed as dotted IPv4 or in the form of RFC 5952.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Address(IpAddr);

impl Address {
    /// `None` if the text is no address: dotted IPv4 without leading zeros, or IPv6.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<IpAddr>().ok().map(Self::from)
    }

    /// True for IPv4, even if written as IPv4-mapped IPv6.
    pub fn is_v4(self) -> bool {
        self.0.is_ipv4()
    }

    /// The standard library's form; never an IPv4-mapped IPv6 address.
    pub fn ip(self) -> IpAddr {
        self.0
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self(address.to_canonical())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, Self::parse)
    }
}

/// For types that are texts in JSON and contain an address.
pub(crate) fn parsed<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    parse: fn(&str) -> Option<T>,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    let invalid = || serde::de::Error::custom(format_args!("{} is no address", text::quoted(&text)));
    parse(&text).ok_or_else(invalid)
}

/// The order of texts that mostly are addresses: by number, IPv4 before IPv6, then other texts by their bytes. Two
/// spellings of one address are equal.
pub fn compare(left: &str, right: &str) -> Ordering {
    if left == right {
        return Ordering::Equal;
    }
    match (Address::parse(left), Address::parse(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => left.cmp(right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv6Addr;

    fn spelled(text: &str) -> Option<String> {
        Address::parse(text).map(|address| address.to_string())
    }

    #[test]
    fn one_spelling_for_each_address() {
        for (given, expected) in [
            ("192.0.2.10", "192.0.2.10"),
            ("::ffff:192.0.2.10", "192.0.2.10"),
            ("::FFFF:c000:20a", "192.0.2.10"),
            ("2001:0DB8:0:0::0010", "2001:db8::10"),
            ("2001:db8:0:1:0:0:0:1", "2001:db8:0:1::1"),
            // RFC 5952 4.2.2 and 4.2.3: a single zero field is written out; of two equal runs the first is shortened.
            ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
            ("2001:0:0:1:0:0:1:1", "2001::1:0:0:1:1"),
            // Not an IPv4-mapped address: it stays IPv6, without dots.
            ("::192.0.2.9", "::c000:209"),
            ("64:ff9b::192.0.2.1", "64:ff9b::c000:201"),
            ("::", "::"),
            ("::1", "::1"),
        ] {
            assert_eq!(spelled(given).as_deref(), Some(expected), "{given}");
        }
    }

    #[test]
    fn what_is_no_address() {
        for text in [
            "",
            " 192.0.2.1",
            "192.0.2.1 ",
            "192.0.2",
            "192.0.2.256",
            "192.0.2.01",
            "0x7f.0.0.1",
            "192.0.2.1/32",
            "192.0.2.1:80",
            "[::1]",
            "fe80::1%eth0",
            "2001:db8::/32",
            "1:2:3:4:5:6:7:8:9",
            "1:2:3:4::5:6:7:8",
            "12345::",
            ":::",
            "::ffff:192.0.2.01",
            "node-a",
            "::1\n",
        ] {
            assert_eq!(spelled(text), None, "{text:?}");
        }
    }

    #[test]
    fn unspecified_in_every_spelling() {
        for text in ["0.0.0.0", "::", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"] {
            assert!(
                Address::parse(text).is_some_and(|address| address.ip().is_unspecified()),
                "{text}"
            );
        }
    }

    #[test]
    fn ipv4_by_number_then_ipv6_by_number_then_text() {
        let mut texts = vec![
            "",
            "::1",
            "node",
            "10.0.0.10",
            "2001:db8::a",
            "10.0.0.9",
            "2001:db8::10",
            "Node",
        ];
        texts.sort_by(|left, right| compare(left, right));
        assert_eq!(
            texts,
            [
                "10.0.0.9",
                "10.0.0.10",
                "::1",
                "2001:db8::a",
                "2001:db8::10",
                "",
                "Node",
                "node"
            ]
        );
        assert_eq!(compare("::ffff:10.0.0.9", "10.0.0.9"), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn a_spelling_reads_back_as_the_same_address(number: u128) {
            let address = Address::from(IpAddr::from(Ipv6Addr::from(number)));
            prop_assert_eq!(Address::parse(&address.to_string()), Some(address));
        }

        #[test]
        fn every_spelling_of_one_address_is_equal(number: u32) {
            let dotted = std::net::Ipv4Addr::from(number).to_string();
            let mapped = format!("0:0:0:0:0:ffff:{:X}:{:04x}", number >> 16, number & 0xffff);
            prop_assert_eq!(Address::parse(&mapped), Address::parse(&dotted));
            prop_assert_eq!(Address::parse(&mapped).map(|a| a.to_string()), Some(dotted));
        }

        #[test]
        fn any_text_is_compared_without_a_fault(left in ".*", right in "[0-9a-f:.]*") {
            prop_assert_eq!(compare(&left, &right), compare(&right, &left).reverse());
        }
    }
}
