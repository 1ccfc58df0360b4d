//! The facts from Kubernetes about a node.

use std::collections::BTreeSet;

use trueup_guest::address::Address;
use trueup_guest::network::Network;

use crate::bindings::trueup::kube::types::{Node, NodeAddress, NodeAddressType};
use crate::world::World;

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
    pub(crate) fn read(world: &mut impl World, node: &Node) -> Self {
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
            world.warn(
                "a node's pod CIDR does not parse and is taken for none",
                &[("node", &node.name), ("pod_cidr", &node.pod_cidr)],
            );
        }
        Self { addresses, pod_cidr }
    }
}
