//! The world `trueup:nodesync/node-syncer`: its bindings, and its exports by name.

pub mod records;

use serde::{Deserialize, Serialize};
use trueup_instance::{bindings, world};

pub use trueup_instance::dispatch::Nothing;

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "nodesync";

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/kube", "../../wit/etcd", "../../wit/nodesync"],
    "trueup:nodesync/node-syncer",
    {
        "trueup:etcd": trueup_capabilities::bindings::etcd,
        "trueup:kube": trueup_capabilities::bindings::kube,
        "trueup:nodesync/types": trueup_capabilities::bindings::nodesync::types,
    }
}

pub use bindings::exports::trueup::nodesync::node_sync::{
    Change, ClusterState, Error, IpVersion, Node, NodeUpdate, VppNode,
};
pub use trueup_capabilities::bindings::kube::types::Node as KubeNode;

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

world! {
    "trueup:nodesync/node-syncer" as NodeSyncer, NodeSyncerPre;
    imports: ["etcd/kv", "host/log", "host/metrics", "kube/types", "nodesync/types"];
    exports: ["guest/lifecycle", "nodesync/node-sync"];
    is_stateless: false; trueup_nodesync_node_sync:
    "node-sync.get-all-nodes": Nothing => |e, s, _a| e.call_get_all_nodes(s);
    "node-sync.get-node-id": Nothing => |e, s, _a| e.call_get_node_id(s);
    "node-sync.publish-node-ips": PublishNodeIps => |e, s, a| e.call_publish_node_ips(s, &a.addresses, a.version);
    "node-sync.resync": Resync => |e, s, a| e.call_resync(s, &a.state);
    "node-sync.update": Update => |e, s, a| e.call_update(s, &a.change);
}
