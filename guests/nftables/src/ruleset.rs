//! What the packet filter shall hold for services: chains by name, and what is looked up where.
//!
//! Pure data. Two chains with equal contents have equal rules, and two with different contents have different ones, so
//! that what changed is found without writing rules.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Serialize;
use trueup_guest_common::address::Address;

use crate::bindings::trueup::kube::types;

/// A table's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4
    Ip,
    /// IPv6
    Ip6,
}

impl Family {
    /// True if the address is of this family.
    #[must_use]
    pub fn has(self, address: Address) -> bool {
        address.is_v4() == (self == Self::Ip)
    }
}

/// A transport protocol, ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Protocol {
    Sctp,
    Tcp,
    Udp,
}

impl Protocol {
    /// As nft knows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sctp => "sctp",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl From<types::Protocol> for Protocol {
    fn from(protocol: types::Protocol) -> Self {
        match protocol {
            types::Protocol::Tcp => Self::Tcp,
            types::Protocol::Udp => Self::Udp,
            types::Protocol::Sctp => Self::Sctp,
        }
    }
}

/// What a packet is looked up by. Ordered as elements are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// None: a node port, on every local address.
    pub address: Option<Address>,
    /// Of the packet.
    pub protocol: Protocol,
    /// The destination port.
    pub port: u16,
}

/// Where a packet goes that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To this chain.
    Chain(Rc<str>),
    /// The service port has no endpoints.
    Reject,
}

/// The maps, in the order in which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Map {
    /// Addresses of services with endpoints.
    ServiceIps,
    /// Node ports of services with endpoints.
    ServiceNodeports,
    /// Addresses of service ports without.
    NoEndpointIps,
    /// Node ports of service ports without.
    NoEndpointNodeports,
}

impl Map {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [
        Self::ServiceIps,
        Self::ServiceNodeports,
        Self::NoEndpointIps,
        Self::NoEndpointNodeports,
    ];

    /// The one that has the key while it has this verdict.
    #[must_use]
    pub fn of(key: &Key, verdict: &Verdict) -> Self {
        match (key.address, verdict) {
            (Some(_), Verdict::Chain(_)) => Self::ServiceIps,
            (None, Verdict::Chain(_)) => Self::ServiceNodeports,
            (Some(_), Verdict::Reject) => Self::NoEndpointIps,
            (None, Verdict::Reject) => Self::NoEndpointNodeports,
        }
    }

    /// As the kernel knows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ServiceIps => "service-ips",
            Self::ServiceNodeports => "service-nodeports",
            Self::NoEndpointIps => "no-endpoint-ips",
            Self::NoEndpointNodeports => "no-endpoint-nodeports",
        }
    }

    /// False if it is looked up by protocol and port alone.
    #[must_use]
    pub fn has_addresses(self) -> bool {
        matches!(self, Self::ServiceIps | Self::NoEndpointIps)
    }
}

/// How one of several endpoints is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Anew for every connection.
    Random,
    /// By the client's address, so that a client keeps its endpoint while the endpoints stay the same.
    ByClient,
}

/// One of these endpoints' chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    choice: Choice,
    /// Empty: there is nothing to go to.
    pub to: Vec<Rc<str>>,
}

impl Balance {
    /// With less than two endpoints there is nothing to choose, and the choice makes no difference.
    #[must_use]
    pub fn new(choice: Choice, to: Vec<Rc<str>>) -> Self {
        let choice = if to.len() < 2 { Choice::Random } else { choice };
        Self { choice, to }
    }

    /// How one is chosen.
    #[must_use]
    pub fn choice(&self) -> Choice {
        self.choice
    }
}

/// What is in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chain {
    /// `ep/S/E`: to one endpoint.
    Endpoint {
        /// Of the service port.
        protocol: Protocol,
        /// Of the endpoint.
        address: Address,
        /// Of the endpoint.
        port: u16,
    },
    /// `svc/S`: to one of all endpoints.
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
        /// To the local endpoints; empty: dropped.
        local: Balance,
    },
}

/// Chains by name.
pub type Chains = BTreeMap<Rc<str>, Chain>;

/// Elements by map and key: in the order in which they are written.
pub type Elements = BTreeMap<(Map, Key), Verdict>;

/// What a table holds for services, or for some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// By name.
    pub chains: Chains,
    /// By map and key.
    pub elements: Elements,
}

impl Content {
    /// Adds what is looked up by this key, in the map for it.
    pub fn add(&mut self, key: Key, verdict: Verdict) {
        self.elements.insert((Map::of(&key, &verdict), key), verdict);
    }
}
