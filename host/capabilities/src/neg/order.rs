//! The canonical order of endpoints and NEGs, as in the guest's specification.

use std::net::IpAddr;

use super::{Endpoint, NegRef};
use crate::bindings::order_by;

/// The place of an address field: empty, then IPv4 by number, then IPv6 by number, then any other text. Ties are
/// ordered by bytes.
fn place(text: &str) -> (bool, Option<IpAddr>, &str) {
    let address = text.parse().ok();
    (address.is_none() && !text.is_empty(), address, text)
}

impl Eq for Endpoint {}

// Addresses by number, the rest as bytes.
order_by!(Endpoint, it => place(&it.ip), place(&it.ipv6), (&it.port, &it.node));

impl Eq for NegRef {}

order_by!(NegRef, it => (&it.name, &it.zone));

#[cfg(test)]
pub(super) mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    pub(in crate::neg) fn neg(name: &str, zone: &str) -> NegRef {
        NegRef {
            name: name.to_owned(),
            zone: zone.to_owned(),
        }
    }

    pub(in crate::neg) fn endpoint(ip: &str, ipv6: &str, port: &str, node: &str) -> Endpoint {
        Endpoint {
            ip: ip.to_owned(),
            ipv6: ipv6.to_owned(),
            port: port.to_owned(),
            node: node.to_owned(),
        }
    }

    #[test]
    fn addresses_go_by_number_and_the_rest_by_bytes() {
        let ascending = [
            endpoint("", "", "", ""),
            endpoint("", "fd00::9", "", ""),
            endpoint("", "fd00::10", "", ""),
            endpoint("9.0.0.1", "", "", ""),
            endpoint("10.0.0.9", "", "443", "b"),
            endpoint("10.0.0.9", "", "80", "a"),
            endpoint("10.0.0.9", "", "80", "b"),
            endpoint("10.0.0.9", "fd00::1", "1", "a"),
            endpoint("10.0.0.10", "", "", ""),
            endpoint("fd00::1", "", "", ""),
            endpoint("10.0.0.010", "", "", ""),
        ];
        for pair in ascending.windows(2) {
            assert!(pair[0] < pair[1], "{:?} before {:?}", pair[0], pair[1]);
        }
    }

    fn endpoints() -> impl Strategy<Value = Endpoint> {
        let address = || {
            prop_oneof![
                Just(String::new()),
                "10\\.0\\.0\\.[0-9]{1,2}",
                "fd00::[0-9a-f]{1,2}",
                "FD00::[0-9A-F]",
                "[a-z]"
            ]
        };
        (address(), address(), "[0-9]{0,2}", "[ab]?").prop_map(|(ip, ipv6, port, node)| Endpoint {
            ip,
            ipv6,
            port,
            node,
        })
    }

    proptest! {
        #[test]
        fn it_is_an_order_and_equal_is_the_same_text(a in endpoints(), b in endpoints(), c in endpoints()) {
            prop_assert_eq!(a.cmp(&b) == Ordering::Equal, a == b);
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
        }
    }
}
