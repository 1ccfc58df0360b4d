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
pub(crate) struct Endpoint {
    /// The pod's address, of either family.
    pub(crate) address: Address,
    /// Never 0.
    pub(crate) port: u16,
    /// True if it is on this node.
    pub(crate) is_local: bool,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// The name of the service's port.
    pub(crate) name: PortName,
    /// The protocol of the service's port.
    pub(crate) protocol: Protocol,
    /// On the service's addresses; 0 if it has none.
    pub(crate) port: u16,
    /// On every node; 0 if it has none.
    pub(crate) node_port: u16,
    /// Each address and port once, in the order given.
    pub(crate) endpoints: Vec<Endpoint>,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// For external addresses and node ports.
    pub(crate) policy: TrafficPolicy,
    /// How to choose one of its endpoints.
    pub(crate) choice: Choice,
    /// In the order given, of either family.
    pub(crate) cluster_ips: Vec<Address>,
    /// In the order given, of either family.
    pub(crate) external_ips: Vec<Address>,
    /// In the order given, each name once.
    pub(crate) ports: Vec<Port>,
    /// The texts that are no addresses.
    pub(crate) no_addresses: Vec<String>,
}

impl Facts {
    /// Parses the service.
    pub(crate) fn read(service: &ContivService) -> Self {
        let mut no_addresses = Vec::new();
        let mut backends: BTreeMap<&str, Vec<Endpoint>> = BTreeMap::new();
        for of_port in &service.backends {
            let endpoints = backends.entry(&of_port.port_name).or_default();
            let of_port = of_port.backends.iter();
            endpoints.extend(of_port.filter_map(|one| endpoint(one, &mut no_addresses)));
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
    let mut seen = BTreeSet::new();
    let mut ports: Vec<&ServicePort> = given.iter().rev().filter(|port| seen.insert(&port.name)).collect();
    ports.reverse();
    ports
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
