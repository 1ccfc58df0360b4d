//! Whole calls against a simulated database, rule by rule, and properties of any sequence of them.

pub(crate) mod cases;
mod conflicts;
mod laws;
pub(crate) mod questions;
mod racing;
pub(crate) mod refusing;
mod restarting;
mod updates;

use crate::bindings::exports::trueup::nodesync::node_sync::{Change, ClusterState, VppNode};
use crate::bindings::trueup::kube::types::{Node as KubeNode, NodeAddress, NodeAddressType};
use crate::bindings::trueup::nodesync::types::{Node, NodeUpdate};
use crate::node_sync::NodeSync;
use crate::simulated::Simulation;
use trueup_guest::Guest as _;

/// The settings of most tests.
const CONFIG: &str = r#"{"node_name": "me"}"#;
/// The key of this node's record with id 2.
const OWN_KEY: &str = "/vnf-agent/contiv-ksr/allocatedIDs/2";

/// A new instance with these settings as JSON.
fn instance(config: &str) -> NodeSync {
    NodeSync::init(config).unwrap()
}

/// An instance after a resync with these records: it has no id unless one of them is of `me`.
fn synced(world: &mut Simulation, records: &[(u32, &str, &str)]) -> NodeSync {
    let mut node_sync = instance(CONFIG);
    node_sync.resync(world, state(records, &[])).unwrap();
    node_sync
}

/// id, name, addresses with blanks between them
fn record(&(id, name, addresses): &(u32, &str, &str)) -> VppNode {
    VppNode {
        id,
        name: name.to_owned(),
        ip_addresses: addresses.split_whitespace().map(str::to_owned).collect(),
    }
}

/// name, internal addresses with blanks between them, pod CIDR
fn kube(&(name, addresses, pod_cidr): &(&str, &str, &str)) -> KubeNode {
    let address = |address: &str| NodeAddress {
        address_type: NodeAddressType::InternalIp,
        address: address.to_owned(),
    };
    KubeNode {
        name: name.to_owned(),
        addresses: addresses.split_whitespace().map(address).collect(),
        pod_cidr: pod_cidr.to_owned(),
    }
}

fn state(records: &[(u32, &str, &str)], nodes: &[(&str, &str, &str)]) -> ClusterState {
    ClusterState {
        vpp_nodes: records.iter().map(record).collect(),
        kube_nodes: nodes.iter().map(kube).collect(),
    }
}

fn put(id: u32, name: &str, addresses: &str) -> Change {
    Change::VppNodePut(record(&(id, name, addresses)))
}

fn put_kube(name: &str, addresses: &str, pod_cidr: &str) -> Change {
    Change::KubeNodePut(kube(&(name, addresses, pod_cidr)))
}

/// `3 a [192.168.16.3/24] [10.0.0.3] 10.1.3.0/24`
fn line(node: &Node) -> String {
    let [vpp, mgmt] = [&node.vpp_ip_addresses, &node.mgmt_ip_addresses].map(|list| list.join(" "));
    format!("{} {} [{vpp}] [{mgmt}] {}", node.id, node.name, node.pod_cidr)
        .trim_end()
        .to_owned()
}

fn lines(nodes: &[Node]) -> Vec<String> {
    nodes.iter().map(line).collect()
}

/// `a: before -> after`, with `-` for none.
fn listed(updates: &[NodeUpdate]) -> Vec<String> {
    let side = |node: &Option<Node>| node.as_ref().map_or_else(|| "-".to_owned(), line);
    let update = |update: &NodeUpdate| format!("{}: {} -> {}", update.node_name, side(&update.prev), side(&update.new));
    updates.iter().map(update).collect()
}
