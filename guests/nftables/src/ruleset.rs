//! The desired contents of the packet filter for services: chains by name, and lookups by key.
//!
//! Pure data. Chains with equal contents have equal rules, and chains with different contents different ones, so that a
//! change is found without writing rules.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use trueup_guest::address::Address;

use crate::bindings::trueup::kube::types::Protocol;

/// A table's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Family {
    /// IPv4
    Ip,
    /// IPv6
    Ip6,
}

impl Family {
    /// True if the address is of this family.
    pub(crate) fn has(self, address: Address) -> bool {
        address.is_v4() == (self == Self::Ip)
    }

    /// `None` if the text is no address of this family.
    pub(crate) fn read(self, text: &str) -> Option<Address> {
        Address::parse(text).filter(|&address| self.has(address))
    }

    /// In nft's notation.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        }
    }
}

/// The kernel's name of a transport protocol.
pub(crate) fn name_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// The lookup key of a packet. Sorted in the order of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// `None` for a node port, which applies to every local address.
    pub(crate) address: Option<Address>,
    /// The name of the packet's protocol.
    pub(crate) protocol: &'static str,
    /// The destination port.
    pub(crate) port: u16,
}

/// In nft's notation.
impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, port, .. } = self;
        match self.address {
            Some(address) => write!(out, r#"{{"concat":["{address}","{protocol}",{port}]}}"#),
            None => write!(out, r#"{{"concat":["{protocol}",{port}]}}"#),
        }
    }
}

/// The target of a packet that a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Continues in this chain.
    Chain(Rc<str>),
    /// The service port has no endpoints.
    Reject,
}

impl Verdict {
    /// The chain to continue in. The base has that for packets to service ports without endpoints.
    pub(crate) fn target(&self) -> &str {
        match self {
            Self::Chain(name) => name,
            Self::Reject => "reject-it",
        }
    }
}

/// A map. Sorted in the order of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Map {
    /// True for service ports without endpoints.
    is_without_endpoints: bool,
    /// True for node ports, false for addresses.
    is_of_node_ports: bool,
}

impl Map {
    /// In the kernel's notation.
    pub(crate) fn name(self) -> &'static str {
        match (self.is_without_endpoints, self.is_of_node_ports) {
            (false, false) => "service-ips",
            (false, true) => "service-nodeports",
            (true, false) => "no-endpoint-ips",
            (true, true) => "no-endpoint-nodeports",
        }
    }
}

/// One of these endpoints' chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    /// True if the client's address chooses one, so that a client keeps its endpoint while the endpoints stay the same;
    /// else each connection chooses anew.
    pub(crate) by_client: bool,
    /// Empty if there is no target.
    pub(crate) to: Vec<Rc<str>>,
}

impl Balance {
    /// With fewer than two endpoints the choice makes no difference.
    pub(crate) fn new(by_client: bool, to: Vec<Rc<str>>) -> Self {
        let by_client = by_client && to.len() > 1;
        Self { by_client, to }
    }
}

/// The contents of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    /// `ep/S/E`: leads to one endpoint: the name of the service port's protocol, the endpoint's address and its port.
    Endpoint(&'static str, Address, u16),
    /// `svc/S`: leads to one of all endpoints.
    All {
        /// S
        comment: Rc<str>,
        /// Never empty.
        balance: Balance,
    },
    /// `ext/S` of a service whose traffic policy is `cluster-wide`.
    ClusterWide {
        /// S
        comment: Rc<str>,
        /// `svc/S`
        all: Rc<str>,
    },
    /// `ext/S` of a service whose traffic policy is `node-local`.
    NodeLocal {
        /// S
        comment: Rc<str>,
        /// `svc/S`
        all: Rc<str>,
        /// The local endpoints; if empty, the chain drops the packet.
        local: Balance,
    },
}

/// Chains by name.
pub(crate) type Chains = BTreeMap<Rc<str>, Chain>;

/// Elements by map and key, in the order of writing.
pub(crate) type Elements = BTreeMap<(Map, Key), Verdict>;

/// The contents of a table for all services, or for some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// By name.
    pub(crate) chains: Chains,
    /// By map and key.
    pub(crate) elements: Elements,
}

impl Content {
    /// Adds a lookup for this key, in the map for it.
    pub(crate) fn add(&mut self, key: Key, verdict: Verdict) {
        let map = Map {
            is_without_endpoints: verdict == Verdict::Reject,
            is_of_node_ports: key.address.is_none(),
        };
        self.elements.insert((map, key), verdict);
    }
}
