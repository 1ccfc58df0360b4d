//! The guest nodesync: gives this node a small number that no other node of the cluster has, publishes its addresses on
//! the data plane, and reports changes of the other nodes.
//!
//! The number is a key in a database that all nodes share: the first to store it owns it. The model is node sync of
//! Contiv-VPP; the specification lists the intended differences.
//!
//! This file has the exports, and decides nothing. `view` and `record` are pure;
//! `allocation` and `node_sync` ask a [`world`]; `node_sync` has their text, too.
//!
//! ```text
//! records -----+                 +-> get-all-nodes
//!              +-> view ---------+-> updates: before, after
//! Kubernetes --+     |
//!                    +-> no number yet: allocate; the record is gone: put back (allocation) -> database
//! publish-node-ips ------> wanted, where it differs from what is stored --------------------> database
//! ```
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::Imports;

use crate::bindings::exports::trueup::nodesync::node_sync::{self as exported, Change, ClusterState, Error};
use crate::bindings::trueup::nodesync::types::{IpVersion, Node, NodeUpdate};
use crate::node_sync::NodeSync;

mod allocation;
mod bindings;
mod node_sync;
mod record;
mod settings;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod view;
mod world;

trueup_guest::guest!(NodeSync);

trueup_guest::exports! { exported::Guest {
    fn resync(state: ClusterState) -> Result<(), Error> = |node_sync| node_sync.resync(&mut Imports, state);
    fn update(change: Change) -> Result<Vec<NodeUpdate>, Error> = |node_sync| node_sync.update(&mut Imports, change);
    fn get_node_id() -> u32 = |node_sync| node_sync.id;
    fn get_all_nodes() -> Vec<Node> = |node_sync| node_sync.all_nodes();
    fn publish_node_ips(addresses: Vec<String>, version: IpVersion) -> Result<bool, Error> =
        |node_sync| node_sync.publish_node_ips(&mut Imports, &addresses, version);
} }
