//! A service in the form that rules need: its addresses as numbers, each port with its backends.
//!
//! Pure. Leaves out invalid addresses, and reports them.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::address::Address;

use crate::bindings::trueup::service::types::{Backend, ContivService, ServicePort, TrafficPolicy};
use crate::names::PortName;
use crate::ruleset::{Choice, Protocol};

/// A possible target of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The pod's address, of either family.
    pub address: Address,
    /// Never 0.
    pub port: u16,
    /// True if it is on this node.
    pub is_local: bool,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name of the service's port.
    pub name: PortName,
    /// The protocol of the service's port.
    pub protocol: Protocol,
    /// On the service's addresses; 0 if it has none.
    pub port: u16,
    /// On every node; 0 if it has none.
    pub node_port: u16,
    /// Each address and port once, in the order given.
    pub endpoints: Vec<Endpoint>,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// For external addresses and node ports.
    pub policy: TrafficPolicy,
    /// How to choose one of its endpoints.
    pub choice: Choice,
    /// In the order given, of either family.
    pub cluster_ips: Vec<Address>,
    /// In the order given, of either family.
    pub external_ips: Vec<Address>,
    /// In the order given, each name once.
    pub ports: Vec<Port>,
    /// The texts that are no addresses.
    pub no_addresses: Vec<String>,
}

impl Facts {
    /// Parses the service.
    #[must_use]
    pub fn read(service: &ContivService) -> Self {
        let mut no_addresses = Vec::new();
        let mut backends: BTreeMap<&str, Vec<Endpoint>> = BTreeMap::new();
        for of_port in &service.backends {
            let endpoints = backends.entry(&of_port.port_name).or_default();
            endpoints.extend(
                of_port
                    .backends
                    .iter()
                    .filter_map(|one| endpoint(one, &mut no_addresses)),
            );
        }
        for endpoints in backends.values_mut() {
            let mut seen = BTreeSet::new();
            endpoints.retain(|endpoint| seen.insert((endpoint.address, endpoint.port)));
        }
        let port = |port: &ServicePort| Port {
            name: PortName::new(&service.id, &port.name),
            protocol: port.protocol.into(),
            port: port.port,
            node_port: port.node_port,
            // Names are unique here, so the port can take all of its backends.
            endpoints: backends.remove(port.name.as_str()).unwrap_or_default(),
        };
        Self {
            policy: service.traffic_policy,
            choice: match service.session_affinity_timeout_s {
                0 => Choice::Random,
                _ => Choice::ByClient,
            },
            ports: ports(&service.ports).into_iter().map(port).collect(),
            cluster_ips: addresses(&service.cluster_ips, &mut no_addresses),
            external_ips: addresses(&service.external_ips, &mut no_addresses),
            no_addresses,
        }
    }
}

/// Of two ports with one name the last counts, as in the service processor: their chains would have the same name.
fn ports(given: &[ServicePort]) -> Vec<&ServicePort> {
    let last: BTreeMap<&str, usize> = given
        .iter()
        .enumerate()
        .map(|(index, port)| (port.name.as_str(), index))
        .collect();
    given
        .iter()
        .enumerate()
        .filter(|(index, port)| last.get(port.name.as_str()) == Some(index))
        .map(|(_, port)| port)
        .collect()
}

fn endpoint(backend: &Backend, no_addresses: &mut Vec<String>) -> Option<Endpoint> {
    let address = address(&backend.ip, no_addresses)?;
    (backend.port != 0).then_some(Endpoint {
        address,
        port: backend.port,
        is_local: backend.local,
    })
}

fn addresses(texts: &[String], no_addresses: &mut Vec<String>) -> Vec<Address> {
    texts.iter().filter_map(|text| address(text, no_addresses)).collect()
}

fn address(text: &str, no_addresses: &mut Vec<String>) -> Option<Address> {
    let address = Address::parse(text);
    if address.is_none() {
        no_addresses.push(text.to_owned());
    }
    address
}
