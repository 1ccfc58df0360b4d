//! Checks a caller's input, and turns it into a valid [`DesiredState`].
//!
//! Reports the first problem: fields in the order of the record, elements by index, and each element's own checks
//! before its comparison with earlier elements.

use std::collections::BTreeMap;

use trueup_guest::address::Address;
use trueup_guest::text::quoted;

use crate::bindings::exports::trueup::lbaas::reconciliation::{self, Desired};
use crate::desired::{DesiredState, Port, Target, joined};

/// Reads a `desired`.
///
/// # Errors
/// The first problem, `FIELD: was VALUE, REASON`: the text of `invalid-input`.
pub fn parse(desired: &Desired) -> Result<DesiredState<'_>, String> {
    Ok(DesiredState {
        load_balancers: load_balancers(&desired.load_balancers)?,
        tag: match desired.service_uid.as_str() {
            "" => return Err(problem("service-uid", quoted(""), "must not be empty")),
            uid => format!("anxccm-svc-uid={uid}"),
        },
        addresses: addresses(&desired.external_addresses)?,
        ports: ports(&desired.ports, &desired.name_suffix)?,
        targets: targets(&desired.servers)?,
        backoff_steps: match desired.backoff_steps {
            0 => return Err(problem("backoff-steps", 0, "must be at least 1")),
            steps => steps,
        },
    })
}

fn load_balancers(identifiers: &[String]) -> Result<Vec<&str>, String> {
    if identifiers.is_empty() {
        return Err(problem("load-balancers", "[]", "must hold at least one identifier"));
    }
    let mut earlier = BTreeMap::new();
    let field = |index| format!("load-balancers[{index}]");
    for (index, identifier) in identifiers.iter().enumerate() {
        if identifier.is_empty() {
            return Err(problem(field(index), quoted(identifier), "must not be empty"));
        }
        admit(&mut earlier, identifier, index, field, || quoted(identifier))?;
    }
    Ok(identifiers.iter().map(String::as_str).collect())
}

fn addresses(texts: &[String]) -> Result<Vec<Address>, String> {
    let mut earlier = BTreeMap::new();
    let field = |index| format!("external-addresses[{index}]");
    for (index, text) in texts.iter().enumerate() {
        let address = address(&field(index), text)?;
        admit(&mut earlier, address, index, field, || quoted(text))?;
    }
    Ok(earlier.into_keys().collect())
}

fn ports(given: &[reconciliation::Port], suffix: &str) -> Result<Vec<Port>, String> {
    let (mut names, mut externals) = (BTreeMap::new(), BTreeMap::new());
    let name_of = |index| format!("ports[{index}].name");
    let external_of = |index| format!("ports[{index}].external");
    let mut ports = Vec::with_capacity(given.len());
    for (index, port) in given.iter().enumerate() {
        if port.name.is_empty() && suffix.is_empty() {
            let reason = "must not be empty where name-suffix is empty";
            return Err(problem(name_of(index), quoted(""), reason));
        }
        if port.external == 0 {
            return Err(problem(external_of(index), 0, "must be 1 to 65535"));
        }
        if port.internal == 0 {
            return Err(problem(format!("ports[{index}].internal"), 0, "must be 1 to 65535"));
        }
        admit(&mut names, &port.name, index, name_of, || quoted(&port.name))?;
        admit(&mut externals, port.external, index, external_of, || {
            port.external.to_string()
        })?;
        ports.push(Port {
            name: joined(&port.name, suffix),
            external: port.external,
            internal: port.internal,
        });
    }
    ports.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(ports)
}

fn targets(given: &[reconciliation::Target]) -> Result<Vec<Target<'_>>, String> {
    let mut names = BTreeMap::new();
    let name_of = |index| format!("servers[{index}].name");
    let mut targets = Vec::with_capacity(given.len());
    for (index, target) in given.iter().enumerate() {
        if target.name.is_empty() {
            return Err(problem(name_of(index), quoted(""), "must not be empty"));
        }
        let address = address(&format!("servers[{index}].address"), &target.address)?;
        admit(&mut names, &target.name, index, name_of, || quoted(&target.name))?;
        targets.push(Target {
            name: &target.name,
            text: address.to_string(),
        });
    }
    targets.sort_by_key(|target| target.name);
    Ok(targets)
}

fn address(field: &str, text: &str) -> Result<Address, String> {
    let address = Address::parse(text).ok_or_else(|| problem(field, quoted(text), "must be an IP address"))?;
    if address.ip().is_unspecified() {
        return Err(problem(field, quoted(text), "must not be the unspecified address"));
    }
    Ok(address)
}

fn problem(field: impl std::fmt::Display, was: impl std::fmt::Display, reason: impl std::fmt::Display) -> String {
    format!("{field}: was {was}, {reason}")
}

/// Adds the value of one more element to those of `earlier` elements, each with its element's index. `field` names the
/// field of the element at an index, `was` gives the value's text.
///
/// # Errors
/// That an earlier element has this value.
fn admit<T: Ord>(
    earlier: &mut BTreeMap<T, usize>,
    value: T,
    index: usize,
    field: impl Fn(usize) -> String,
    was: impl FnOnce() -> String,
) -> Result<(), String> {
    let Some(other) = earlier.insert(value, index) else {
        return Ok(());
    };
    let reason = format!("must differ from {}", field(other));
    Err(problem(field(index), was(), reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::desired;

    fn good() -> Desired {
        desired(&["lb-1", "lb-2"], &[("http", 80, 30080), ("https", 443, 30443)], 2)
    }

    /// The first problem after `change`.
    fn refused(change: impl FnOnce(&mut Desired)) -> String {
        let mut desired = good();
        change(&mut desired);
        parse(&desired).unwrap_err()
    }

    #[test]
    fn good_input_is_sorted_and_spelled_in_one_way() {
        let mut desired = good();
        desired.ports.reverse();
        desired.servers.reverse();
        desired.external_addresses = vec!["2001:DB8:0::1".to_owned(), "::ffff:192.0.2.1".to_owned()];
        let desired = parse(&desired).unwrap();
        assert_eq!(desired.load_balancers, ["lb-1", "lb-2"]);
        assert_eq!(desired.tag, "anxccm-svc-uid=u1");
        assert_eq!(
            desired.ports.iter().map(|port| &port.name).collect::<Vec<_>>(),
            ["http.web.ns.c1", "https.web.ns.c1"]
        );
        let texts: Vec<_> = desired.addresses.iter().map(Address::to_string).collect();
        assert_eq!(texts, ["192.0.2.1", "2001:db8::1"]);
        assert_eq!(
            desired.targets.iter().map(|target| target.name).collect::<Vec<_>>(),
            ["node-0", "node-1"]
        );
    }

    #[test]
    fn every_field_is_refused_in_its_own_words() {
        type Change = fn(&mut Desired);
        let cases: [(Change, &str); 23] = [
            (
                |d| d.load_balancers.clear(),
                "load-balancers: was [], must hold at least one identifier",
            ),
            (
                |d| d.load_balancers[1].clear(),
                r#"load-balancers[1]: was "", must not be empty"#,
            ),
            (
                |d| d.load_balancers[1] = "lb-1".to_owned(),
                r#"load-balancers[1]: was "lb-1", must differ from load-balancers[0]"#,
            ),
            (|d| d.service_uid.clear(), r#"service-uid: was "", must not be empty"#),
            (
                |d| d.external_addresses[0] = "192.0.2.256".to_owned(),
                r#"external-addresses[0]: was "192.0.2.256", must be an IP address"#,
            ),
            (
                |d| d.external_addresses[0] = "a\"b".to_owned(),
                r#"external-addresses[0]: was "a\"b", must be an IP address"#,
            ),
            (
                |d| d.external_addresses[1] = "::".to_owned(),
                r#"external-addresses[1]: was "::", must not be the unspecified address"#,
            ),
            (
                |d| d.external_addresses[1] = "::ffff:0.0.0.0".to_owned(),
                r#"external-addresses[1]: was "::ffff:0.0.0.0", must not be the unspecified address"#,
            ),
            (
                |d| d.external_addresses.push("2001:DB8:0::10".to_owned()),
                r#"external-addresses[2]: was "2001:DB8:0::10", must differ from external-addresses[1]"#,
            ),
            (
                |d| d.external_addresses[1] = "::ffff:192.0.2.10".to_owned(),
                r#"external-addresses[1]: was "::ffff:192.0.2.10", must differ from external-addresses[0]"#,
            ),
            (
                |d| {
                    d.name_suffix.clear();
                    d.ports[0].name.clear();
                },
                r#"ports[0].name: was "", must not be empty where name-suffix is empty"#,
            ),
            (
                |d| d.ports[1].name = "http".to_owned(),
                r#"ports[1].name: was "http", must differ from ports[0].name"#,
            ),
            (
                |d| {
                    d.ports[0].name.clear();
                    d.ports[1].name.clear();
                },
                r#"ports[1].name: was "", must differ from ports[0].name"#,
            ),
            (
                |d| d.ports[0].external = 0,
                "ports[0].external: was 0, must be 1 to 65535",
            ),
            (
                |d| d.ports[1].external = 80,
                "ports[1].external: was 80, must differ from ports[0].external",
            ),
            (
                |d| d.ports[1].internal = 0,
                "ports[1].internal: was 0, must be 1 to 65535",
            ),
            (
                |d| {
                    d.ports[1].name = "http".to_owned();
                    d.ports[1].internal = 0;
                },
                "ports[1].internal: was 0, must be 1 to 65535",
            ),
            (
                |d| d.servers[0].name.clear(),
                r#"servers[0].name: was "", must not be empty"#,
            ),
            (
                |d| d.servers[1].name = "node-0".to_owned(),
                r#"servers[1].name: was "node-0", must differ from servers[0].name"#,
            ),
            (
                |d| d.servers[0].address = "10.1.0.1/24".to_owned(),
                r#"servers[0].address: was "10.1.0.1/24", must be an IP address"#,
            ),
            (
                |d| d.servers[0].address = "0.0.0.0".to_owned(),
                r#"servers[0].address: was "0.0.0.0", must not be the unspecified address"#,
            ),
            (
                |d| {
                    d.servers[1].name = "node-0".to_owned();
                    d.servers[1].address = "x".to_owned();
                },
                r#"servers[1].address: was "x", must be an IP address"#,
            ),
            (|d| d.backoff_steps = 0, "backoff-steps: was 0, must be at least 1"),
        ];
        for (change, problem) in cases {
            assert_eq!(refused(change), problem);
        }
    }

    #[test]
    fn the_first_field_of_the_record_is_refused_first() {
        let error = refused(|d| {
            d.backoff_steps = 0;
            d.ports[0].external = 0;
            d.servers[0].name.clear();
        });
        assert!(error.starts_with("ports[0].external"), "{error}");
    }

    #[test]
    fn targets_may_share_an_address_and_ports_a_node_port() {
        let mut desired = good();
        desired.servers[1].address = desired.servers[0].address.clone();
        desired.ports[1].internal = desired.ports[0].internal;
        assert!(parse(&desired).is_ok());
    }

    #[test]
    fn empty_lists_are_fine() {
        let mut desired = good();
        desired.external_addresses.clear();
        desired.ports.clear();
        desired.servers.clear();
        assert!(parse(&desired).is_ok());
    }
}
