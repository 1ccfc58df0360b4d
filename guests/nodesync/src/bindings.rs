//! The contract's types and functions, generated from `wit/`.

trueup_guest::bindings! {
    world: "trueup:nodesync/node-syncer",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/etcd", "../../wit/kube", "../../wit/nodesync"],
    derives: [Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize],
}
