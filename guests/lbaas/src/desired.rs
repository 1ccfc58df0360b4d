//! What one service wants on every load balancer: names, ports, addresses and targets, ready for comparison.
//!
//! A [`DesiredState`] comes only from checked input (`input`), so everything here is unique as needed. It is sorted,
//! so that an existing resource finds its place by binary search without building a name.

use std::ops::Range;

use trueup_guest::address::Address;
use trueup_guest::words;

use crate::bindings::trueup::lbaas::types::{Backend, Bind, Frontend, Mode, Server, Spec};

/// The health check of every backend, in the Engine's own notation: with both pairs of quotes, without braces.
pub const HEALTH_CHECK: &str = r#""adv_check": "tcp-check""#;

/// The `check` of every server.
pub const CHECK: &str = "enabled";

/// A checked `desired`, borrowed from it.
#[derive(Debug)]
pub struct DesiredState<'a> {
    /// in the order given
    pub load_balancers: Vec<&'a str>,
    /// the one tag of all the service's resources, which holds its UID
    pub tag: String,
    /// by name
    pub ports: Vec<Port>,
    /// ascending, in the one spelling that is sent
    pub addresses: Vec<Address>,
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

/// A node that servers lead to.
#[derive(Debug)]
pub struct Target<'a> {
    /// the first part of its servers' names
    pub name: &'a str,
    /// its address in the one spelling that is sent
    pub text: String,
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
    pub fn bind(&self, frontend: &str, address: Address) -> Bind {
        Bind {
            name: joined(family(address), &self.name),
            frontend: frontend.to_owned(),
            address: address.to_string(),
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

/// The first part of the names of an address's binds.
fn family(address: Address) -> &'static str {
    if address.is_v4() { "v4" } else { "v6" }
}

/// The column of backends.
pub const BACKEND: usize = 0;
/// The column of frontends.
pub const FRONTEND: usize = 1;

/// What is desired as a table, so that a resource finds its place by number: a row for each port, with its backend, its
/// frontend, a bind for each address and a server for each target.
impl DesiredState<'_> {
    /// The columns of the addresses' binds.
    pub fn address_columns(&self) -> Range<usize> {
        let first = FRONTEND + 1;
        first..first + self.addresses.len()
    }

    /// The columns of the targets' servers.
    pub fn target_columns(&self) -> Range<usize> {
        let first = self.address_columns().end;
        first..first + self.targets.len()
    }

    /// The cell's number: row by row.
    pub fn cell(&self, port: usize, column: usize) -> usize {
        port * self.target_columns().end + column
    }

    /// The cell that this resource of a load balancer fulfils. `parent` is that of its parent, the port's backend or
    /// frontend; `None` if the parent fulfils none.
    pub fn fulfilled(&self, parent: Option<usize>, spec: &Spec) -> Option<usize> {
        let row = parent.map(|cell| cell / self.target_columns().end);
        let of_parent = row.and_then(|row| Some((row, self.ports.get(row)?)));
        match spec {
            Spec::Backend(found) => {
                let row = self
                    .ports
                    .binary_search_by(|port| words::compare(&port.name, &found.name));
                let is_same = found.mode == Mode::Tcp && found.health_check == HEALTH_CHECK;
                row.ok().filter(|_| is_same).map(|row| self.cell(row, BACKEND))
            }
            Spec::Frontend(found) => {
                let (row, port) = of_parent?;
                let is_same = found.mode == Mode::Tcp && words::are_same(&port.name, &found.name);
                is_same.then(|| self.cell(row, FRONTEND))
            }
            Spec::Bind(found) => {
                let (row, port) = of_parent?;
                let address = Address::parse(&found.address)?;
                let index = self.addresses.binary_search(&address).ok()?;
                let is_same = found.port == port.external && before(&found.name, &port.name)? == family(address);
                is_same.then(|| self.cell(row, self.address_columns().start + index))
            }
            Spec::Server(found) => {
                let (row, port) = of_parent?;
                let name = before(&found.name, &port.name)?;
                let index = (self.targets).binary_search_by(|target| words::compare(target.name, name));
                let index = index.ok()?;
                let target = &self.targets.get(index)?.text;
                // In any spelling.
                let is_there = words::are_same(&found.ip, target)
                    || Address::parse(&found.ip).is_some_and(|address| address.to_string() == *target);
                let is_same = found.port == port.internal && found.check == CHECK && is_there;
                is_same.then(|| self.cell(row, self.target_columns().start + index))
            }
        }
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
        let mut cell = 0..;
        for port in &desired.ports {
            let backend = cell.next();
            assert_eq!(desired.fulfilled(None, &Spec::Backend(port.backend("lb-1"))), backend);
            let frontend = cell.next();
            assert_eq!(
                desired.fulfilled(backend, &Spec::Frontend(port.frontend("lb-1", "b"))),
                frontend
            );
            for &address in &desired.addresses {
                assert_eq!(
                    desired.fulfilled(frontend, &Spec::Bind(port.bind("f", address))),
                    cell.next()
                );
            }
            for target in &desired.targets {
                assert_eq!(
                    desired.fulfilled(backend, &Spec::Server(port.server("b", target))),
                    cell.next()
                );
            }
        }
    }
}
