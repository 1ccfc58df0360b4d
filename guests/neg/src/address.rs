//! One address field of an endpoint: its rank in the order, and its canonical text.
//!
//! Knows no endpoints. An IPv4-mapped IPv6 address is ordered by its IPv6 number; as an address of a target or a NEG,
//! it is no IPv6 address.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The class of a field's text. Fields are ordered by class first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// No text.
    Empty,
    /// Four decimal parts.
    V4,
    /// Any spelling of an IPv6 address.
    V6,
    /// Anything else.
    Text,
}

/// A field's rank in the order. Texts with the same rank are ordered by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The class of the text.
    pub class: Class,
    /// The upper and the lower half of the address as a number: smaller and faster to compare than a `u128`. 0 if the
    /// text is no address.
    halves: (u64, u64),
}

impl Rank {
    /// The rank of an empty text.
    pub const EMPTY: Self = Self {
        class: Class::Empty,
        halves: (0, 0),
    };

    /// The rank of this text.
    pub fn of(text: &str) -> Self {
        if text.is_empty() {
            return Self::EMPTY;
        }
        if let Some(address) = plain::v4(text.as_bytes()) {
            return Self::of_v4(address);
        }
        match parse_v6(text) {
            Some(address) => Self::of_v6(address),
            None => Self {
                class: Class::Text,
                halves: (0, 0),
            },
        }
    }

    const fn of_v4(address: Ipv4Addr) -> Self {
        Self {
            class: Class::V4,
            halves: (0, address.to_bits() as u64),
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let number = address.to_bits();
        let half = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        Self {
            class: Class::V6,
            halves: (half(number >> 64), half(number & u128::from(u64::MAX))),
        }
    }

    /// The address as a number; 0 if the text is no address.
    pub fn number(self) -> u128 {
        (u128::from(self.halves.0) << 64) | u128::from(self.halves.1)
    }

    /// True if no other text has this rank: an empty text, and IPv4 addresses, which have one spelling each.
    pub const fn has_one_text(self) -> bool {
        matches!(self.class, Class::Empty | Class::V4)
    }
}

/// The rank of an empty text, or of an IPv4 address: four decimal parts without leading zeros, and nothing after them.
pub fn v4(text: &str) -> Option<Rank> {
    let rank = Rank::of(text);
    rank.has_one_text().then_some(rank)
}

/// The rank of an empty text, or of an IPv6 address, whose text becomes that of RFC 5952. `None`, and the text
/// unchanged, for any other text, which includes texts with a zone or a prefix length and IPv4-mapped addresses.
pub fn v6(text: &mut String) -> Option<Rank> {
    if text.is_empty() {
        return Some(Rank::EMPTY);
    }
    let address = parse_v6(text).filter(|address| address.to_ipv4_mapped().is_none())?;
    *text = address.to_string();
    Some(Rank::of_v6(address))
}

/// The standard library parses texts with dots, and all invalid ones.
fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    plain::v6(text.as_bytes()).or_else(|| text.parse().ok())
}

/// Parses plainly written addresses in one pass over their bytes.
///
/// The standard library's parser backtracks; in a filter of many endpoints it took half of the time. This one gives the
/// same results: a test checks that for any text.
mod plain {
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Parses all IPv4 addresses.
    pub(super) fn v4(text: &[u8]) -> Option<Ipv4Addr> {
        let mut parts = [0_u8; 4];
        let mut rest = text;
        for (index, part) in parts.iter_mut().enumerate() {
            if index > 0 {
                rest = rest.strip_prefix(b".")?;
            }
            let mut number = 0_u32;
            let mut length = 0_usize;
            while let Some((&digit @ b'0'..=b'9', after)) = rest.split_first() {
                number = number * 10 + u32::from(digit - b'0');
                length += 1;
                // 1 to 3 digits, the first of several not 0, at most 255.
                if length > 3 || (length > 1 && number < 10) || number > 255 {
                    return None;
                }
                rest = after;
            }
            *part = u8::try_from(number).ok().filter(|_| length > 0)?;
        }
        rest.is_empty().then(|| Ipv4Addr::from(parts))
    }

    /// Parses IPv6 addresses without an IPv4 part; `None` for all other text.
    pub(super) fn v6(text: &[u8]) -> Option<Ipv6Addr> {
        // Eight groups as one number; those after `::` are kept apart until their count is known.
        let (mut number, mut groups) = (0_u128, 0_u32);
        let mut before_gap = None;
        let mut rest = text;
        if let Some(after) = rest.strip_prefix(b"::") {
            before_gap = Some((0, 0));
            rest = after;
        }
        while !rest.is_empty() {
            let (mut group, mut length) = (0_u128, 0_usize);
            while let Some((digit, after)) = rest.split_first().and_then(|(&byte, after)| Some((hex(byte)?, after))) {
                group = (group << 4) | digit;
                length += 1;
                rest = after;
            }
            if length == 0 || length > 4 || groups == 8 {
                return None;
            }
            number = (number << 16) | group;
            groups += 1;
            if rest.is_empty() {
                break;
            }
            rest = rest.strip_prefix(b":")?;
            if let Some(after) = rest.strip_prefix(b":") {
                if before_gap.is_some() {
                    return None;
                }
                before_gap = Some((std::mem::take(&mut number), groups));
                rest = after;
            } else if rest.is_empty() {
                return None;
            }
        }
        match before_gap {
            None => (groups == 8).then(|| Ipv6Addr::from_bits(number)),
            // A gap replaces at least one group.
            Some(_) if groups == 8 => None,
            Some((_, 0)) => Some(Ipv6Addr::from_bits(number)),
            Some((before, count)) => Some(Ipv6Addr::from_bits((before << (128 - 16 * count)) | number)),
        }
    }

    const fn hex(byte: u8) -> Option<u128> {
        match byte {
            b'0'..=b'9' => Some((byte - b'0') as u128),
            b'a'..=b'f' => Some((byte - b'a' + 10) as u128),
            b'A'..=b'F' => Some((byte - b'A' + 10) as u128),
            _ => None,
        }
    }
}

/// True for no port, and for 1 to 65535 in decimal digits without sign, blank or leading zero.
pub fn is_port(text: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.is_empty() || (digits && text.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_then_ipv4_by_number_then_ipv6_by_number_then_text() {
        let texts = [
            "",
            "9.0.0.0",
            "10.0.0.0",
            "::1",
            "::ffff:10.0.0.1",
            "fd00::2",
            "fd00::10",
            "x",
        ];
        let ranks: Vec<Rank> = texts.iter().map(|text| Rank::of(text)).collect();
        assert!(ranks.is_sorted_by(|left, right| left < right), "{ranks:?}");
        for text in ["010.0.0.1", " 10.0.0.1", "10.0.0.1/32", "fe80::1%eth0", "[::1]", "node"] {
            assert_eq!(Rank::of(text).class, Class::Text, "{text}");
        }
        assert_eq!(Rank::of("FD00:0::0002"), Rank::of("fd00::2"));
    }

    #[test]
    fn what_is_an_ipv4_address() {
        assert_eq!(v4("10.0.0.1").map(Rank::number), Some(0x0a00_0001));
        assert_eq!(v4(""), Some(Rank::EMPTY));
        for text in [
            "10.0.0",
            "10.0.0.01",
            "10.0.0.256",
            "10.0.0.1 ",
            "10.0.0.1/32",
            "fd00::1",
            "+1.0.0.0",
        ] {
            assert_eq!(v4(text), None, "{text}");
        }
    }

    #[test]
    fn an_ipv6_address_becomes_canonical() {
        for (given, canonical) in [
            ("FD00:0::0001", "fd00::1"),
            ("fd00::1", "fd00::1"),
            ("::", "::"),
            ("0:0:0:0:0:0:0:1", "::1"),
            ("64:ff9b::192.0.2.1", "64:ff9b::c000:201"),
            (
                "1111:2222:3333:4444:5555:6666:7777:8888",
                "1111:2222:3333:4444:5555:6666:7777:8888",
            ),
        ] {
            let mut text = given.to_owned();
            assert!(v6(&mut text).is_some(), "{given}");
            assert_eq!(text, canonical);
        }
        assert_eq!(v6(&mut String::new()), Some(Rank::EMPTY));
        for text in [
            "x",
            "10.0.0.1",
            "fe80::1%eth0",
            "fd00::/64",
            "::ffff:10.0.0.1",
            "::FFFF:a00:1",
            " ::1",
        ] {
            let mut kept = text.to_owned();
            assert_eq!(v6(&mut kept), None, "{text}");
            assert_eq!(kept, text);
        }
    }

    #[test]
    fn what_is_a_port() {
        for text in ["", "1", "80", "65535"] {
            assert!(is_port(text), "{text}");
        }
        for text in [
            "0",
            "080",
            "65536",
            "+80",
            "-1",
            " 80",
            "80 ",
            "http",
            "８０",
            "99999999999999999999",
        ] {
            assert!(!is_port(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_plainly_is_what_the_standard_library_reads(
            text in prop_oneof![
                "[0-9a-fA-F:.]{0,20}", "([0-9a-f]{0,5}:){0,9}[0-9a-f]{0,5}", "([0-9]{0,4}\\.){0,5}[0-9]{0,4}",
                "(([0-9a-f]{1,4}:){0,4}(:[0-9a-f]{1,4}){0,4}:?)", ".{0,10}",
                any::<u128>().prop_map(|number| Ipv6Addr::from_bits(number).to_string()),
                (any::<u128>(), any::<u128>(), any::<u128>())
                    .prop_map(|(a, b, c)| Ipv6Addr::from_bits(a & b & c & (c << 16) & (c >> 32)).to_string()),
                any::<u32>().prop_map(|number| Ipv4Addr::from_bits(number).to_string()),
            ],
        ) {
            prop_assert_eq!(plain::v4(text.as_bytes()), text.parse().ok());
            let v6: Option<Ipv6Addr> = text.parse().ok();
            prop_assert_eq!(parse_v6(&text), v6);
            if !text.contains('.') {
                prop_assert_eq!(plain::v6(text.as_bytes()), v6);
            }
        }

        #[test]
        fn every_canonical_text_stays_and_has_its_number(number: u128) {
            let address = Ipv6Addr::from_bits(number);
            let mut text = address.to_string();
            if let Some(rank) = v6(&mut text) {
                prop_assert_eq!(rank.number(), number);
            }
            prop_assert_eq!(text, address.to_string());
        }
    }
}
