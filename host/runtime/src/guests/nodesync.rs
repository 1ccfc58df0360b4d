//! The world `trueup:nodesync/node-syncer`: its bindings, and its exports by name.

pub mod records;

use serde::{Deserialize, Serialize};
use trueup_engine::{Data, Engine, Guest};

use super::dispatch::exports;

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "nodesync";

/// The name of its world in WIT.
pub const WORLD: &str = "trueup:nodesync/node-syncer@0.1.0";

/// The worlds that a guest of this name may have.
pub(crate) const WORLDS: &[&str] = &[WORLD];

#[expect(missing_docs, reason = "generated from wit/, where the documentation stands")]
mod bindings {
    wasmtime::component::bindgen!({
        path: [
            "../../wit/host",
            "../../wit/guest",
            "../../wit/kube",
            "../../wit/etcd",
            "../../wit/nodesync",
        ],
        world: "trueup:nodesync/node-syncer",
        with: {
            "trueup:host": trueup_capabilities::bindings::host,
            "trueup:etcd": trueup_capabilities::bindings::etcd,
            "trueup:kube": trueup_capabilities::bindings::kube,
            "trueup:nodesync/types": trueup_capabilities::bindings::nodesync::types,
        },
        require_store_data_send: true,
        exports: { default: async },
        additional_derives: [Clone, PartialEq, serde::Serialize, serde::Deserialize],
    });
}

pub use bindings::exports::trueup::nodesync::node_sync::{
    Change, ClusterState, Error, IpVersion, Node, NodeUpdate, VppNode,
};
pub use trueup_capabilities::bindings::kube::types::Node as KubeNode;

pub use bindings::{NodeSyncer, NodeSyncerPre};

/// Links a guest of this world.
///
/// # Errors
/// If an import or export does not have the type in `wit/`.
pub fn link(engine: &Engine, guest: &Guest) -> wasmtime::Result<NodeSyncerPre<Data>> {
    let mut linker = trueup_engine::linker_for(engine, guest)?;
    NodeSyncer::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |data: &mut Data| &mut data.host)?;
    NodeSyncerPre::new(linker.instantiate_pre(guest.component())?)
}

/// The arguments of `node-sync.resync`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resync {
    /// The known state of the cluster.
    pub state: ClusterState,
}

/// The arguments of `node-sync.update`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// The change.
    pub change: Change,
}

/// The arguments of `node-sync.publish-node-ips`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishNodeIps {
    /// All addresses of this family, each with the prefix length of its network.
    pub addresses: Vec<String>,
    /// The family.
    pub version: IpVersion,
}

/// Calls without arguments.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Nothing {}

exports! { NodeSyncer, trueup_nodesync_node_sync;
    "node-sync.get-all-nodes": Nothing => |e, s, _a| e.call_get_all_nodes(s);
    "node-sync.get-node-id": Nothing => |e, s, _a| e.call_get_node_id(s);
    "node-sync.publish-node-ips": PublishNodeIps => |e, s, a| e.call_publish_node_ips(s, &a.addresses, a.version);
    "node-sync.resync": Resync => |e, s, a| e.call_resync(s, &a.state);
    "node-sync.update": Update => |e, s, a| e.call_update(s, &a.change);
}
