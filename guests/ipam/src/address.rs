//! An IPv4 address in its only accepted spelling.
//!
//! Unlike the addresses that other guests share, it takes no other spelling, and no IPv6: what is stored under one text
//! must never be found under another.

use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// An IPv4 address, ordered by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Address(Ipv4Addr);

impl Address {
    /// `None` unless the text is four decimal numbers from 0 to 255, without leading zeros, joined by dots.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn any_other_spelling_is_no_address() {
        for text in [
            "",
            " 10.0.0.1",
            "10.0.0.1 ",
            "10.0.0.1\n",
            "010.0.0.1",
            "10.0.0.01",
            "10.0.0.00",
            "10.0.0.256",
            "10.0.0",
            "10.0.0.1.2",
            "10.0..1",
            "+1.0.0.1",
            "-1.0.0.1",
            "0x1.0.0.1",
            "1e1.0.0.1",
            "10.0.0.1/32",
            "10.0.0.1:80",
            "::1",
            "::ffff:10.0.0.1",
            "٣.0.0.1",
            "10.0.0.1\0",
            "167772161",
        ] {
            assert_eq!(Address::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn no_meaning_is_attached_to_any_value() {
        for text in ["0.0.0.0", "255.255.255.255", "127.0.0.1", "224.0.0.1"] {
            assert_eq!(Address::parse(text).map(|a| a.to_string()).as_deref(), Some(text));
        }
    }

    proptest! {
        #[test]
        fn the_order_is_by_number(left: u32, right: u32) {
            let [a, b] = [left, right].map(|n| Address::parse(&Ipv4Addr::from_bits(n).to_string()).unwrap());
            prop_assert_eq!(a.cmp(&b), left.cmp(&right));
            prop_assert_eq!(a.to_string(), Ipv4Addr::from_bits(left).to_string());
        }

        #[test]
        fn what_is_taken_is_spelled_as_it_was(text in "[0-9.]{1,16}|[0-9]{1,3}(\\.[0-9]{1,3}){3}") {
            if let Some(address) = Address::parse(&text) {
                prop_assert_eq!(address.to_string(), text);
            }
        }
    }
}
