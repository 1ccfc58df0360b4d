//! One service's part of one family's table: its chains, and the keys that it claims.
//!
//! Pure. Knows no other services: `claims` decides which of several gets a key.

use std::collections::BTreeMap;
use std::rc::Rc;

use trueup_guest::address::Address;

use crate::bindings::trueup::service::types::TrafficPolicy;
use crate::facts::{Endpoint, Facts, Port};
use crate::ruleset::{Balance, Chain, Chains, Choice, Family, Key, Verdict};

/// A service's part of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// By name.
    pub(crate) chains: Chains,
    /// Every key that the service would have if it were alone.
    pub(crate) claims: BTreeMap<Key, Verdict>,
}

impl Part {
    /// The part of this service in this family.
    pub(crate) fn of(facts: &Facts, family: Family) -> Self {
        let mut part = Self::default();
        let ports: Vec<(&Port, Vec<Endpoint>)> =
            facts.ports.iter().map(|port| (port, endpoints(port, family))).collect();
        // If a service claims one key twice, a port with endpoints wins over one without.
        for (port, endpoints) in ports.iter().filter(|(_, endpoints)| !endpoints.is_empty()) {
            part.add_port(facts, family, port, endpoints);
        }
        for (port, _) in ports.iter().filter(|(_, endpoints)| endpoints.is_empty()) {
            let (cluster, external) = keys(facts, family, port);
            for key in cluster.into_iter().chain(external) {
                part.claims.entry(key).or_insert(Verdict::Reject);
            }
        }
        part
    }

    fn add_port(&mut self, facts: &Facts, family: Family, port: &Port, endpoints: &[Endpoint]) {
        let (cluster_keys, external_keys) = keys(facts, family, port);
        if cluster_keys.is_empty() && external_keys.is_empty() {
            return;
        }
        let all: Rc<str> = port.name.all().into();
        let comment: Rc<str> = port.name.plain.as_str().into();
        let to: Vec<(Rc<str>, bool)> = endpoints
            .iter()
            .map(|&one| (self.add_endpoint(port, one), one.is_local))
            .collect();
        self.chains.insert(
            Rc::clone(&all),
            Chain::All {
                comment: Rc::clone(&comment),
                balance: balance(facts.choice, to.iter()),
            },
        );
        self.claim(cluster_keys, &all);
        if external_keys.is_empty() {
            return;
        }
        let external: Rc<str> = port.name.external().into();
        let chain = match facts.policy {
            TrafficPolicy::ClusterWide => Chain::ClusterWide { comment, all },
            TrafficPolicy::NodeLocal => Chain::NodeLocal {
                comment,
                all,
                local: balance(facts.choice, to.iter().filter(|(_, is_local)| *is_local)),
            },
        };
        self.chains.insert(Rc::clone(&external), chain);
        self.claim(external_keys, &external);
    }

    fn claim(&mut self, keys: Vec<Key>, chain: &Rc<str>) {
        for key in keys {
            let verdict = || Verdict::Chain(Rc::clone(chain));
            self.claims.entry(key).or_insert_with(verdict);
        }
    }

    /// Returns the chain's name.
    fn add_endpoint(&mut self, port: &Port, endpoint: Endpoint) -> Rc<str> {
        let name: Rc<str> = port.name.endpoint(endpoint.address, endpoint.port).into();
        let chain = Chain::Endpoint {
            protocol: port.protocol,
            address: endpoint.address,
            port: endpoint.port,
        };
        self.chains.insert(Rc::clone(&name), chain);
        name
    }
}

fn endpoints(port: &Port, family: Family) -> Vec<Endpoint> {
    let endpoints = port.endpoints.iter().copied();
    endpoints.filter(|endpoint| family.has(endpoint.address)).collect()
}

fn balance<'n>(choice: Choice, to: impl Iterator<Item = &'n (Rc<str>, bool)>) -> Balance {
    Balance::new(choice, to.map(|(name, _)| Rc::clone(name)).collect())
}

/// The keys of a service port, in order: those of cluster addresses, and those of external addresses with the node
/// port. Duplicates are not reported.
fn keys(facts: &Facts, family: Family, port: &Port) -> (Vec<Key>, Vec<Key>) {
    let key = |address: Option<Address>, number: u16| Key {
        address,
        protocol: port.protocol,
        port: number,
    };
    let keys = |addresses: &[Address]| -> Vec<Key> {
        let addresses = addresses
            .iter()
            .filter(|address| family.has(**address) && port.port != 0);
        addresses.map(|&address| key(Some(address), port.port)).collect()
    };
    let mut external = keys(&facts.external_ips);
    if port.node_port != 0 {
        external.push(key(None, port.node_port));
    }
    (keys(&facts.cluster_ips), external)
}
