//! The contract's types and functions, generated from `wit/`.

trueup_guest::bindings! {
    world: "trueup:service/nftables-renderer",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/kube", "../../wit/etcd", "../../wit/nodesync",
        "../../wit/service"],
    // With serde, since a snapshot holds services as received.
    derives: [Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize],
}
