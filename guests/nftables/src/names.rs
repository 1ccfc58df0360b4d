//! The names of a service port's chains: `svc/default/web/http`.
//!
//! Pure. Different service ports get different names, whatever characters theirs hold.

use std::fmt::Write as _;

use trueup_guest::address::Address;

use crate::bindings::trueup::kube::types::ObjectId;

/// A service port's name, for chains and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortName {
    /// `<namespace>/<name>/<port name>`, each escaped.
    escaped: String,
    /// The same, not escaped.
    pub(crate) plain: String,
}

impl PortName {
    /// The name of the service's port with this name.
    pub(crate) fn new(id: &ObjectId, port: &str) -> Self {
        let parts = [&*id.namespace, &*id.name, port];
        Self {
            escaped: parts.map(escaped).join("/"),
            plain: parts.join("/"),
        }
    }

    /// The chain that leads to one of all endpoints.
    pub(crate) fn all(&self) -> String {
        format!("svc/{}", self.escaped)
    }

    /// The chain of external addresses and node ports.
    pub(crate) fn external(&self) -> String {
        format!("ext/{}", self.escaped)
    }

    /// The chain of one endpoint.
    pub(crate) fn endpoint(&self, address: Address, port: u16) -> String {
        // nft accepts no `:` in a name.
        let address = address.to_string().replace(':', ".");
        format!("ep/{}/{address}/{port}", self.escaped)
    }
}

/// Writes every byte other than letters, digits, `-` and `.` as `_` and two hex digits.
fn escaped(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for &byte in part.as_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.') {
            out.push(char::from(byte));
        } else {
            // Writing into a String can't fail.
            let _ = write!(out, "_{byte:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(namespace: &str, name: &str, port: &str) -> PortName {
        let id = ObjectId {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        PortName::new(&id, port)
    }

    #[test]
    fn three_parts_and_an_endpoint() {
        let web = name("default", "web-1", "http");
        assert_eq!(web.all(), "svc/default/web-1/http");
        assert_eq!(web.external(), "ext/default/web-1/http");
        let endpoint = |text: &str| web.endpoint(Address::parse(text).unwrap(), 80);
        assert_eq!(endpoint("10.0.0.1"), "ep/default/web-1/http/10.0.0.1/80");
        assert_eq!(endpoint("fd00::1"), "ep/default/web-1/http/fd00..1/80");
        assert_eq!(name("a", "b", "").all(), "svc/a/b/");
    }

    #[test]
    fn what_a_name_may_not_hold_is_escaped_and_the_plain_name_stays() {
        let odd = name("a_b", "c/d", "ü:E.1");
        assert_eq!(odd.all(), "svc/a_5fb/c_2fd/_c3_bc_3aE.1");
        assert_eq!(odd.plain, "a_b/c/d/ü:E.1");
    }

    proptest! {
        #[test]
        fn different_ports_have_different_names(
            one in prop::array::uniform3("[a_/\u{e4}2f]{0,4}"),
            other in prop::array::uniform3("[a_/\u{e4}2f]{0,4}"),
        ) {
            let all = |[namespace, service, port]: &[String; 3]| name(namespace, service, port).all();
            prop_assert_eq!(all(&one) == all(&other), one == other);
        }
    }
}
