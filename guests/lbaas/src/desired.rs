//! What one service wants on every load balancer: names, ports, addresses and targets, ready for comparison.
//!
//! A [`DesiredState`] comes only from checked input (`input`), so everything here is unique as needed. It is sorted,
//! so that an existing resource finds its place by binary search without building a name.

use trueup_guest::address::Address;
use trueup_guest::words;

use crate::bindings::trueup::lbaas::types::{Backend, Bind, Frontend, Mode, Server};

/// The health check of every backend, in the Engine's own notation: with both pairs of quotes, without braces.
pub const HEALTH_CHECK: &str = r#""adv_check": "tcp-check""#;

/// The `check` of every server.
pub const CHECK: &str = "enabled";

/// A checked `desired`, borrowed from it.
#[derive(Debug)]
pub struct DesiredState<'a> {
    /// in the order given
    pub load_balancers: Vec<&'a str>,
    /// the one tag of all the service's resources
    pub tag: String,
    /// by name
    pub ports: Vec<Port>,
    /// by address
    pub addresses: Vec<External>,
    /// by name
    pub targets: Vec<Target<'a>>,
    /// at least 1
    pub backoff_steps: u32,
}

/// A port of the service.
#[derive(Debug)]
pub struct Port {
    /// `PORT.SUFFIX`: the name of its backend and frontend, and the end of all other names
    pub name: String,
    /// where binds listen
    pub external: u16,
    /// where servers listen
    pub internal: u16,
}

/// An external address of the service.
#[derive(Debug)]
pub struct External {
    /// as a number
    pub address: Address,
    /// in the one spelling that is sent
    pub text: String,
}

/// A node that servers lead to.
#[derive(Debug)]
pub struct Target<'a> {
    /// the first part of its servers' names
    pub name: &'a str,
    /// as a number
    pub address: Address,
    /// in the one spelling that is sent
    pub text: String,
}

/// The tag of a service's resources.
pub fn tag(service_uid: &str) -> String {
    format!("anxccm-svc-uid={service_uid}")
}

/// `FIRST.REST`; leaves out an empty part together with its dot.
pub fn joined(first: &str, rest: &str) -> String {
    match (first, rest) {
        ("", rest) => rest.to_owned(),
        (first, "") => first.to_owned(),
        (first, rest) => format!("{first}.{rest}"),
    }
}

/// The part before `.rest`.
fn before<'n>(name: &'n str, rest: &str) -> Option<&'n str> {
    words::without_end(name, rest)?.strip_suffix('.')
}

/// True if the text is this address in any spelling.
fn is_address(text: &str, address: Address, canonical: &str) -> bool {
    words::are_same(text, canonical) || Address::parse(text) == Some(address)
}

impl Port {
    /// The backend that this port wants.
    pub fn backend(&self, load_balancer: &str) -> Backend {
        Backend {
            name: self.name.clone(),
            load_balancer: load_balancer.to_owned(),
            mode: Mode::Tcp,
            health_check: HEALTH_CHECK.to_owned(),
        }
    }

    /// The frontend that this port wants in front of that backend.
    pub fn frontend(&self, load_balancer: &str, backend: &str) -> Frontend {
        Frontend {
            name: self.name.clone(),
            load_balancer: load_balancer.to_owned(),
            mode: Mode::Tcp,
            default_backend: backend.to_owned(),
        }
    }

    /// The bind that this port wants for that address.
    pub fn bind(&self, frontend: &str, external: &External) -> Bind {
        Bind {
            name: joined(external.family(), &self.name),
            frontend: frontend.to_owned(),
            address: external.text.clone(),
            port: self.external,
        }
    }

    /// The server that this port wants for that target.
    pub fn server(&self, backend: &str, target: &Target<'_>) -> Server {
        Server {
            name: joined(target.name, &self.name),
            backend: backend.to_owned(),
            ip: target.text.clone(),
            port: self.internal,
            check: CHECK.to_owned(),
        }
    }
}

impl External {
    /// The first part of the names of its binds.
    fn family(&self) -> &'static str {
        if self.address.is_v4() { "v4" } else { "v6" }
    }
}

impl DesiredState<'_> {
    /// The port that wants this backend of a load balancer.
    pub fn port_of_backend(&self, found: &Backend) -> Option<usize> {
        if found.mode != Mode::Tcp || found.health_check != HEALTH_CHECK {
            return None;
        }
        self.ports
            .binary_search_by(|port| words::compare(&port.name, &found.name))
            .ok()
    }

    /// Whether this port wants this frontend, which leads to the port's backend.
    pub fn is_frontend_of(&self, port: usize, found: &Frontend) -> bool {
        found.mode == Mode::Tcp
            && self
                .ports
                .get(port)
                .is_some_and(|port| words::are_same(&port.name, &found.name))
    }

    /// The address for which this port wants this bind, which is on the port's frontend.
    pub fn address_of_bind(&self, port: usize, found: &Bind) -> Option<usize> {
        let port = self.ports.get(port)?;
        if found.port != port.external {
            return None;
        }
        let address = Address::parse(&found.address)?;
        let index = self
            .addresses
            .binary_search_by(|external| external.address.cmp(&address))
            .ok()?;
        let family = self.addresses.get(index)?.family();
        (before(&found.name, &port.name)? == family).then_some(index)
    }

    /// The target for which this port wants this server, which is in the port's backend.
    pub fn target_of_server(&self, port: usize, found: &Server) -> Option<usize> {
        let port = self.ports.get(port)?;
        if found.port != port.internal || found.check != CHECK {
            return None;
        }
        let name = before(&found.name, &port.name)?;
        let index = self
            .targets
            .binary_search_by(|target| words::compare(target.name, name))
            .ok()?;
        let target = self.targets.get(index)?;
        is_address(&found.ip, target.address, &target.text).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_part_goes_with_its_dot() {
        assert_eq!(joined("http", "web.ns"), "http.web.ns");
        assert_eq!(joined("", "web.ns"), "web.ns");
        assert_eq!(joined("http", ""), "http");
    }

    #[test]
    fn a_name_is_taken_apart_where_it_was_joined() {
        assert_eq!(before("a.b.http.web", "http.web"), Some("a.b"));
        assert_eq!(before("http.web", "http.web"), None);
        assert_eq!(before("xhttp.web", "http.web"), None);
        assert_eq!(before(".http.web", "http.web"), Some(""));
    }

    #[test]
    fn what_is_built_is_found_again() {
        let desired = crate::simulated::desired(&["lb-1"], &[("http", 80, 30080), ("", 53, 30053)], 3);
        let desired = crate::input::parse(&desired).unwrap();
        for (index, port) in desired.ports.iter().enumerate() {
            assert_eq!(desired.port_of_backend(&port.backend("lb-1")), Some(index));
            assert!(desired.is_frontend_of(index, &port.frontend("lb-1", "b")));
            for (at, external) in desired.addresses.iter().enumerate() {
                assert_eq!(desired.address_of_bind(index, &port.bind("f", external)), Some(at));
            }
            for (at, target) in desired.targets.iter().enumerate() {
                assert_eq!(desired.target_of_server(index, &port.server("b", target)), Some(at));
            }
        }
    }
}
