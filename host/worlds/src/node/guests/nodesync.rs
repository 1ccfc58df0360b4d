//! The world `trueup:nodesync/node-syncer`: its bindings, and its exports by name.

pub mod records;

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

world! {
    "trueup:nodesync/node-syncer" as NodeSyncer, NodeSyncerPre;
    imports: ["etcd/kv", "host/log", "host/metrics", "kube/types", "nodesync/types"];
    exports: ["guest/lifecycle", "nodesync/node-sync"];
    is_stateless: false; trueup_nodesync_node_sync:
    "node-sync.get-all-nodes": Nothing => |e, s, _a| e.call_get_all_nodes(s);
    "node-sync.get-node-id": Nothing => |e, s, _a| e.call_get_node_id(s);
    "node-sync.publish-node-ips": PublishNodeIps { addresses: Vec<String>, version: IpVersion } =>
        |e, s, a| e.call_publish_node_ips(s, &a.addresses, a.version);
    "node-sync.resync": Resync { state: ClusterState } => |e, s, a| e.call_resync(s, &a.state);
    "node-sync.update": Update { change: Change } => |e, s, a| e.call_update(s, &a.change);
}
