//! One service's part of one family's table: its chains, and the keys that it claims.
//!
//! Pure. Knows no other services: `step` decides which of several gets a key. Leaves out invalid addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use trueup_guest::address::Address;

use crate::bindings::trueup::service::types::{Backend, ContivService, ServicePort, TrafficPolicy};
use crate::names::PortName;
use crate::ruleset::{Balance, Chain, Chains, Family, Key, Verdict, name_of};

/// A service's part of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// By name.
    pub(crate) chains: Chains,
    /// Every key that the service would have if it were alone.
    pub(crate) claims: BTreeMap<Key, Verdict>,
}

/// Possible targets of a connection, each address and port once, in the order given.
type Endpoints<'s> = Vec<(Address, &'s Backend)>;

impl Part {
    /// The part of this service in this family.
    pub(crate) fn of(service: &ContivService, family: Family) -> Self {
        let mut part = Self::default();
        let mut endpoints = endpoints(service, family);
        let ports = ports(&service.ports).into_iter();
        // Names are unique here, so the port can take all of its endpoints.
        let ports = ports.map(|port| (port, endpoints.remove(port.name.as_str()).unwrap_or_default()));
        let (with, without): (Vec<_>, Vec<_>) = ports.partition(|(_, endpoints)| !endpoints.is_empty());
        // If a service claims one key twice, a port with endpoints wins over one without.
        for (port, endpoints) in with {
            part.add_port(service, family, port, &endpoints);
        }
        for (port, _) in without {
            let (cluster, external) = keys(service, family, port);
            part.claim(cluster.into_iter().chain(external), &Verdict::Reject);
        }
        part
    }

    fn add_port(&mut self, service: &ContivService, family: Family, port: &ServicePort, endpoints: &Endpoints<'_>) {
        let (cluster_keys, external_keys) = keys(service, family, port);
        if cluster_keys.is_empty() && external_keys.is_empty() {
            return;
        }
        let name = PortName::new(&service.id, &port.name);
        let by_client = service.session_affinity_timeout_s != 0;
        let protocol = name_of(port.protocol);
        let (mut to_all, mut to_local) = (Vec::new(), Vec::new());
        for &(address, backend) in endpoints {
            let endpoint: Rc<str> = name.endpoint(address, backend.port).into();
            let chain = Chain::Endpoint(protocol, address, backend.port);
            self.chains.insert(Rc::clone(&endpoint), chain);
            if backend.local {
                to_local.push(Rc::clone(&endpoint));
            }
            to_all.push(endpoint);
        }
        let (all, comment): (Rc<str>, Rc<str>) = (name.all().into(), name.plain.as_str().into());
        let balance = Balance::new(by_client, to_all);
        let chain = Chain::All {
            comment: Rc::clone(&comment),
            balance,
        };
        self.chains.insert(Rc::clone(&all), chain);
        self.claim(cluster_keys, &Verdict::Chain(Rc::clone(&all)));
        if external_keys.is_empty() {
            return;
        }
        let external: Rc<str> = name.external().into();
        let chain = match service.traffic_policy {
            TrafficPolicy::ClusterWide => Chain::ClusterWide { comment, all },
            TrafficPolicy::NodeLocal => Chain::NodeLocal {
                comment,
                all,
                local: Balance::new(by_client, to_local),
            },
        };
        self.chains.insert(Rc::clone(&external), chain);
        self.claim(external_keys, &Verdict::Chain(external));
    }

    fn claim(&mut self, keys: impl IntoIterator<Item = Key>, verdict: &Verdict) {
        for key in keys {
            self.claims.entry(key).or_insert_with(|| verdict.clone());
        }
    }
}

/// The texts of a service that are no addresses.
pub(crate) fn no_addresses(service: &ContivService) -> impl Iterator<Item = &String> {
    let backends = service.backends.iter().flat_map(|of_port| &of_port.backends);
    let texts = backends.map(|backend| &backend.ip);
    let texts = texts.chain(&service.cluster_ips).chain(&service.external_ips);
    texts.filter(|text| Address::parse(text).is_none())
}

/// The endpoints of each port by its name, without those at port 0.
fn endpoints(service: &ContivService, family: Family) -> BTreeMap<&str, Endpoints<'_>> {
    let mut by_port: BTreeMap<&str, Endpoints<'_>> = BTreeMap::new();
    for of_port in &service.backends {
        let backends = of_port.backends.iter().filter(|backend| backend.port != 0);
        let of_family = backends.filter_map(|backend| Some((family.read(&backend.ip)?, backend)));
        by_port.entry(&of_port.port_name).or_default().extend(of_family);
    }
    for endpoints in by_port.values_mut() {
        let mut seen = BTreeSet::new();
        endpoints.retain(|(address, backend)| seen.insert((*address, backend.port)));
    }
    by_port
}

/// Of two ports with one name the last counts, as in the service processor: their chains would have the same name.
fn ports(given: &[ServicePort]) -> Vec<&ServicePort> {
    let mut seen = BTreeSet::new();
    let mut ports: Vec<&ServicePort> = given.iter().rev().filter(|port| seen.insert(&port.name)).collect();
    ports.reverse();
    ports
}

/// The keys of a service port, in order: those of cluster addresses, and those of external addresses with the node
/// port. Duplicates are not reported.
fn keys(service: &ContivService, family: Family, port: &ServicePort) -> (Vec<Key>, Vec<Key>) {
    let key = |address: Option<Address>, number: u16| Key {
        address,
        protocol: name_of(port.protocol),
        port: number,
    };
    let keys = |texts: &[String]| -> Vec<Key> {
        let key = |text: &String| Some(key(Some(family.read(text)?), port.port));
        texts.iter().filter(|_| port.port != 0).filter_map(key).collect()
    };
    let mut external = keys(&service.external_ips);
    if port.node_port != 0 {
        external.push(key(None, port.node_port));
    }
    (keys(&service.cluster_ips), external)
}
