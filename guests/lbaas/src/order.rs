//! The one order of everything, so that the same input gives the same output.
//!
//! Refs need no code here: they use the derived order of `object-ref` (kind, then identifier by its bytes).

use std::cmp::Ordering;

use trueup_guest::address;

use crate::bindings::trueup::lbaas::types::{Bind, Kind, Object, ObjectRef, Server, Spec};

/// The kind of a spec.
pub fn kind(spec: &Spec) -> Kind {
    match spec {
        Spec::Backend(_) => Kind::Backend,
        Spec::Frontend(_) => Kind::Frontend,
        Spec::Bind(_) => Kind::Bind,
        Spec::Server(_) => Kind::Server,
    }
}

/// The name in a spec.
pub fn name(spec: &Spec) -> &str {
    match spec {
        Spec::Backend(backend) => &backend.name,
        Spec::Frontend(frontend) => &frontend.name,
        Spec::Bind(bind) => &bind.name,
        Spec::Server(server) => &server.name,
    }
}

/// The word for a kind, as WIT spells it.
pub fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Backend => "backend",
        Kind::Frontend => "frontend",
        Kind::Bind => "bind",
        Kind::Server => "server",
    }
}

/// The name of an object in lists of refs.
pub fn reference(object: &Object) -> ObjectRef {
    ObjectRef {
        kind: kind(&object.spec),
        identifier: object.identifier.clone(),
    }
}

/// Specs within one kind: field by field as the records list them, addresses by number. Across kinds: by kind.
pub fn specs(left: &Spec, right: &Spec) -> Ordering {
    match (left, right) {
        (Spec::Backend(left), Spec::Backend(right)) => left.cmp(right),
        (Spec::Frontend(left), Spec::Frontend(right)) => left.cmp(right),
        (Spec::Bind(left), Spec::Bind(right)) => binds(left, right),
        (Spec::Server(left), Spec::Server(right)) => servers(left, right),
        (left, right) => kind(left).cmp(&kind(right)),
    }
}

fn binds(left: &Bind, right: &Bind) -> Ordering {
    ((&left.name, &left.frontend).cmp(&(&right.name, &right.frontend)))
        .then_with(|| address::compare(&left.address, &right.address))
        .then_with(|| left.port.cmp(&right.port))
}

fn servers(left: &Server, right: &Server) -> Ordering {
    ((&left.name, &left.backend).cmp(&(&right.name, &right.backend)))
        .then_with(|| address::compare(&left.ip, &right.ip))
        .then_with(|| (left.port, &left.check).cmp(&(right.port, &right.check)))
}

/// The order of destruction: children before parents, within a kind as specs, then by identifier.
pub fn destruction(left: &Object, right: &Object) -> Ordering {
    (kind(&right.spec).cmp(&kind(&left.spec)))
        .then_with(|| specs(&left.spec, &right.spec))
        .then_with(|| left.identifier.cmp(&right.identifier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::trueup::lbaas::types::{Backend, Frontend, Mode, State};

    fn backend(name: &str, mode: Mode) -> Spec {
        Spec::Backend(Backend {
            name: name.into(),
            load_balancer: "lb".into(),
            mode,
            health_check: String::new(),
        })
    }

    fn bind(name: &str, address: &str, port: u16) -> Spec {
        Spec::Bind(Bind {
            name: name.into(),
            frontend: "f".into(),
            address: address.into(),
            port,
        })
    }

    fn server(ip: &str, port: u16, check: &str) -> Spec {
        Spec::Server(Server {
            name: "s".into(),
            backend: "b".into(),
            ip: ip.into(),
            port,
            check: check.into(),
        })
    }

    fn frontend() -> Spec {
        Spec::Frontend(Frontend {
            name: "a".into(),
            load_balancer: "lb".into(),
            mode: Mode::Tcp,
            default_backend: "b".into(),
        })
    }

    #[test]
    fn kinds_then_fields_then_addresses_by_number() {
        let ascending = [
            backend("a", Mode::Tcp),
            backend("a", Mode::Http),
            backend("b", Mode::Tcp),
            frontend(),
            bind("a", "192.0.2.9", 90),
            bind("a", "192.0.2.10", 80),
            bind("a", "::1", 80),
            bind("a", "", 80),
            bind("a", "nowhere", 80),
            bind("b", "192.0.2.9", 80),
            server("10.0.0.9", 9, "x"),
            server("::ffff:10.0.0.9", 10, "a"),
            server("10.0.0.9", 10, "b"),
            server("10.0.0.10", 1, "a"),
        ];
        for (at, left) in ascending.iter().enumerate() {
            for (other, right) in ascending.iter().enumerate() {
                assert_eq!(specs(left, right), at.cmp(&other), "{left:?} and {right:?}");
            }
        }
    }

    #[test]
    fn destruction_takes_children_first_and_identifiers_by_their_bytes() {
        let object = |identifier: &str, spec| Object {
            identifier: identifier.into(),
            state: State::Ok,
            spec,
        };
        let mut objects = [
            object("b-1", backend("a", Mode::Tcp)),
            object("f-1", frontend()),
            object("s9", server("10.0.0.9", 9, "x")),
            object("s10", server("10.0.0.9", 9, "x")),
            object("s0", server("10.0.0.10", 9, "x")),
            object("n-1", bind("a", "192.0.2.9", 90)),
        ];
        objects.sort_by(destruction);
        let identifiers: Vec<_> = objects.iter().map(|object| object.identifier.as_str()).collect();
        assert_eq!(identifiers, ["s10", "s9", "s0", "n-1", "f-1", "b-1"]);
    }
}
