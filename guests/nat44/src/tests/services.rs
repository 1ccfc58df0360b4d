//! Builds services in a few words, for the tests of every renderer: the one of nftables includes this file.

use proptest::prelude::*;
use proptest::sample::select;

use crate::bindings::trueup::kube::types::{ObjectId, Protocol};
use crate::bindings::trueup::service::types::{Backend, ContivService, PortBackends, ServicePort, TrafficPolicy};

pub(crate) fn id(name: &str) -> ObjectId {
    ObjectId {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

pub(crate) fn list(texts: &str) -> Vec<String> {
    texts.split_whitespace().map(str::to_owned).collect()
}

/// A service `default/<name>` with these addresses and no ports.
pub(crate) fn service(name: &str, cluster_ips: &str, external_ips: &str) -> ContivService {
    ContivService {
        id: id(name),
        traffic_policy: TrafficPolicy::ClusterWide,
        session_affinity_timeout_s: 0,
        cluster_ips: list(cluster_ips),
        external_ips: list(external_ips),
        ports: Vec::new(),
        backends: Vec::new(),
    }
}

/// Services of these names with any policy, with or without affinity, at some of these addresses, and without ports.
pub(crate) fn any_service(
    names: &[&'static str],
    affinity_s: u32,
    cluster_ips: impl Strategy<Value = Vec<String>>,
    external_ips: impl Strategy<Value = Vec<String>>,
) -> impl Strategy<Value = ContivService> {
    let policy = select(vec![TrafficPolicy::ClusterWide, TrafficPolicy::NodeLocal]);
    let affinity_s = select(vec![0, affinity_s]);
    (select(names.to_vec()), policy, affinity_s, cluster_ips, external_ips).prop_map(
        |(name, traffic_policy, session_affinity_timeout_s, cluster_ips, external_ips)| ContivService {
            traffic_policy,
            session_affinity_timeout_s,
            cluster_ips,
            external_ips,
            ..service(name, "", "")
        },
    )
}

/// The service with one more TCP port. Backends are written `10.1.1.3#8080`; a trailing asterisk makes one local.
pub(crate) fn with_port(
    mut service: ContivService,
    name: &str,
    port: u16,
    node_port: u16,
    backends: &str,
) -> ContivService {
    service.ports.push(ServicePort {
        name: name.to_owned(),
        protocol: Protocol::Tcp,
        port,
        node_port,
    });
    service.backends.push(PortBackends {
        port_name: name.to_owned(),
        backends: backends.split_whitespace().map(backend).collect(),
    });
    service
}

fn backend(text: &str) -> Backend {
    let (address, local) = match text.strip_suffix('*') {
        Some(address) => (address, true),
        None => (text, false),
    };
    let (ip, port) = address.split_once('#').unwrap();
    Backend {
        ip: ip.to_owned(),
        port: port.parse().unwrap(),
        local,
        host_network: false,
    }
}
