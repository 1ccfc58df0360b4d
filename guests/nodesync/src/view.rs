//! The known state of the other nodes: their records by id, and the facts from Kubernetes by name.
//!
//! Pure but for the log. A node combines its record with the facts from Kubernetes. Of several records with one name
//! the one with the lowest id counts, on all nodes alike.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::address::Address;
use trueup_guest::network::Network;

use crate::bindings::trueup::kube::types::{Node as KubeNode, NodeAddress, NodeAddressType};
use crate::bindings::trueup::nodesync::types::Node;
use crate::world::World;

/// Addresses of one node on the data plane: without duplicates, in order, whatever their spelling. IPv4 before IPv6, by
/// number, then by prefix length.
pub(crate) type Addresses = BTreeSet<Network>;

/// The valid addresses; logs a warning for each invalid one. `node` is their owner.
pub(crate) fn read_addresses(world: &mut impl World, node: &str, texts: &[String]) -> Addresses {
    let message = "an address with network does not parse and is left out";
    let read = |text: &String| world.or_warn(Network::parse(text), message, &[("node", node), ("address", text)]);
    texts.iter().filter_map(read).collect()
}

/// The contents of another node's record; its id is its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Not empty.
    pub(crate) name: String,
    /// On the data plane.
    pub(crate) addresses: Addresses,
}

/// The view of the cluster, without this node's own record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// By id.
    pub(crate) records: BTreeMap<u32, Record>,
    /// The ids of the records by name; never an empty set.
    ids: BTreeMap<String, BTreeSet<u32>>,
    /// The facts from Kubernetes, by name.
    pub(crate) kube: BTreeMap<String, Kube>,
}

impl View {
    /// Sets or replaces the record of an id.
    pub(crate) fn put_record(&mut self, id: u32, record: Record) {
        self.remove_record(id);
        self.ids.entry(record.name.clone()).or_default().insert(id);
        self.records.insert(id, record);
    }

    /// Removes the record of an id.
    pub(crate) fn remove_record(&mut self, id: u32) {
        let Some(old) = self.records.remove(&id) else { return };
        if let Some(ids) = self.ids.get_mut(&old.name) {
            ids.remove(&id);
            if ids.is_empty() {
                self.ids.remove(&old.name);
            }
        }
    }

    /// The names of the nodes that have an id, ascending.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.ids.keys().map(String::as_str)
    }

    /// Another node as reported; `None` if it has no id.
    pub(crate) fn node(&self, name: &str) -> Option<Node> {
        let id = *self.ids.get(name)?.first()?;
        let record = self.records.get(&id)?;
        Some(self.node_with(id, name, &record.addresses))
    }

    /// The node of that name with this id and these addresses, and with the facts from Kubernetes.
    pub(crate) fn node_with(&self, id: u32, name: &str, addresses: &Addresses) -> Node {
        let kube = self.kube.get(name).cloned().unwrap_or_default();
        Node {
            id,
            name: name.to_owned(),
            vpp_ip_addresses: addresses.iter().map(Network::to_string).collect(),
            mgmt_ip_addresses: kube.addresses.iter().map(ToString::to_string).collect(),
            pod_cidr: kube.pod_cidr.map_or_else(String::new, |network| network.to_string()),
        }
    }
}

/// A node's management addresses and its pods' network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kube {
    /// Those of the types `internal-ip` and `external-ip`.
    pub(crate) addresses: BTreeSet<Address>,
    /// Without host bits; `None` if Kubernetes has none.
    pub(crate) pod_cidr: Option<Network>,
}

impl Kube {
    /// The valid facts; logs a warning for each invalid one.
    pub(crate) fn read(world: &mut impl World, node: &KubeNode) -> Self {
        let counts = |of: NodeAddressType| matches!(of, NodeAddressType::InternalIp | NodeAddressType::ExternalIp);
        let message = "a node's address in Kubernetes does not parse and is left out";
        let read = |listed: &NodeAddress| {
            let fields = [("node", node.name.as_str()), ("address", &listed.address)];
            world.or_warn(Address::parse(&listed.address), message, &fields)
        };
        let listed = node.addresses.iter().filter(|listed| counts(listed.address_type));
        let addresses = listed.filter_map(read).collect();
        let pod_cidr = Network::parse(&node.pod_cidr).map(Network::without_host_bits);
        if pod_cidr.is_none() && !node.pod_cidr.is_empty() {
            let message = "a node's pod CIDR does not parse and is taken for none";
            world.warn(message, &[("node", &node.name), ("pod_cidr", &node.pod_cidr)]);
        }
        Self { addresses, pod_cidr }
    }
}
