//! What several tests say of an Engine's objects.

use super::{Backend, Bind, Frontend, Kind, Mode, ObjectRef, Server, Spec};

pub(crate) fn backend(name: &str, load_balancer: &str) -> Spec {
    Spec::Backend(Backend {
        name: name.to_owned(),
        load_balancer: load_balancer.to_owned(),
        mode: Mode::Tcp,
        health_check: "\"adv_check\": \"tcp-check\"".to_owned(),
    })
}

pub(crate) fn frontend(name: &str, load_balancer: &str, default_backend: &str) -> Spec {
    Spec::Frontend(Frontend {
        name: name.to_owned(),
        load_balancer: load_balancer.to_owned(),
        mode: Mode::Tcp,
        default_backend: default_backend.to_owned(),
    })
}

pub(crate) fn bind(name: &str, frontend: &str, address: &str) -> Spec {
    Spec::Bind(Bind {
        name: name.to_owned(),
        frontend: frontend.to_owned(),
        address: address.to_owned(),
        port: 443,
    })
}

pub(crate) fn server(name: &str, backend: &str) -> Spec {
    Spec::Server(Server {
        name: name.to_owned(),
        backend: backend.to_owned(),
        ip: "10.0.0.1".to_owned(),
        port: 30443,
        check: "enabled".to_owned(),
    })
}

pub(crate) fn refs(kind: Kind, identifiers: &[&str]) -> Vec<ObjectRef> {
    identifiers
        .iter()
        .map(|identifier| ObjectRef::new(kind, identifier))
        .collect()
}
