//! The guest nodesync: gives this node a small number that no other node of the cluster has, publishes its addresses on
//! the data plane, and reports changes of the other nodes.
//!
//! The number is a key in a database that all nodes share: the first to store it owns it. The model is node sync of
//! Contiv-VPP; the specification lists the intended differences.
//!
//! This file has the bindings, the exports and the imports, and decides nothing. `view`, `kube` and `record` are pure;
//! `allocation` and `node_sync` ask a [`World`]; `snapshot` is their text.
//!
//! ```text
//! records -----+                 +-> get-all-nodes
//!              +-> view ---------+-> updates: before, after
//! Kubernetes --+     |
//!                    +-> no number yet: allocate; the record is gone: put back (allocation) -> database
//! publish-node-ips ------> wanted, where it differs from what is stored --------------------> database
//! ```
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use std::cell::RefCell;
use trueup_guest_common::panics;

use crate::bindings::exports::trueup::guest::lifecycle;
use crate::bindings::exports::trueup::nodesync::node_sync::{self as exported, Change, ClusterState, Error};
use crate::bindings::trueup::etcd::kv::{self, KeyValue};
use crate::bindings::trueup::host::{log, metrics as meter};
use crate::bindings::trueup::nodesync::types::{IpVersion, Node, NodeUpdate};
use crate::node_sync::NodeSync;
use crate::settings::Settings;
use crate::world::World;

pub mod addresses;
pub mod allocation;
pub mod kube;
pub mod node_sync;
pub mod record;
pub mod settings;
#[cfg(test)]
mod simulated;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod view;
pub mod world;

/// The contract's types and functions, generated from `wit/`.
#[expect(
    missing_docs,
    reason = "a case or parameter whose name says it all has no text in `wit/`"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: ["../../wit/host", "../../wit/guest", "../../wit/etcd", "../../wit/kube", "../../wit/nodesync"],
        world: "trueup:nodesync/node-syncer",
        additional_derives: [Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize],
        generate_all,
    });
}

thread_local! {
    /// The state of this instance. A component has one thread.
    static NODE_SYNC: RefCell<NodeSync> = RefCell::new(NodeSync::new(Settings::default()));
}

/// Reads or changes the instance.
fn with<T>(call: impl FnOnce(&mut NodeSync) -> T) -> T {
    NODE_SYNC.with_borrow_mut(call)
}

/// The exports.
struct Exports;

impl lifecycle::Guest for Exports {
    fn init(config: String) -> Result<(), String> {
        panics::report(|text| log::emit(log::Level::Error, text, &[]));
        let settings = Settings::read(&config)?;
        with(|node_sync| *node_sync = NodeSync::new(settings));
        Ok(())
    }

    fn snapshot() -> String {
        with(|node_sync| node_sync.snapshot())
    }

    fn restore(snapshot: String) -> Result<(), String> {
        with(|node_sync| node_sync.restore(&mut Imports, &snapshot))
    }
}

impl exported::Guest for Exports {
    fn resync(state: ClusterState) -> Result<(), Error> {
        with(|node_sync| node_sync.resync(&mut Imports, state))
    }

    fn update(change: Change) -> Result<Vec<NodeUpdate>, Error> {
        with(|node_sync| node_sync.update(&mut Imports, change))
    }

    fn get_node_id() -> u32 {
        with(|node_sync| node_sync.node_id())
    }

    fn get_all_nodes() -> Vec<Node> {
        with(|node_sync| node_sync.all_nodes())
    }

    fn publish_node_ips(addresses: Vec<String>, version: IpVersion) -> Result<bool, Error> {
        with(|node_sync| node_sync.publish_node_ips(&mut Imports, &addresses, version))
    }
}

/// The component's imports.
struct Imports;

impl World for Imports {
    fn get(&mut self, key: &str) -> Result<Option<KeyValue>, kv::Error> {
        kv::get(key)
    }

    fn list_keys(&mut self, prefix: &str) -> Result<Vec<String>, kv::Error> {
        kv::list_keys(prefix)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<u64, kv::Error> {
        kv::put(key, value)
    }

    fn put_if_not_exists(&mut self, key: &str, value: &str) -> Result<bool, kv::Error> {
        kv::put_if_not_exists(key, value)
    }

    fn counter_add(&mut self, name: &str, delta: u64) {
        meter::counter_add(name, &[], delta);
    }

    fn gauge_set(&mut self, name: &str, value: f64) {
        meter::gauge_set(name, &[], value);
    }

    fn log(&mut self, level: log::Level, message: &str, fields: &[(&str, &str)]) {
        let field = |&(key, value): &(&str, &str)| log::Field {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        log::emit(level, message, &fields.iter().map(field).collect::<Vec<_>>());
    }
}

#[cfg(target_family = "wasm")]
bindings::export!(Exports with_types_in bindings);
