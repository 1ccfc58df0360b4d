//! The contract's types and functions, generated from `wit/`.

trueup_guest::bindings! {
    world: "trueup:service/etcd-renderer",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/kube", "../../wit/etcd", "../../wit/nodesync",
        "../../wit/service"],
    with: { "trueup:etcd/kv@0.1.0": ::trueup_guest::bindings::trueup::etcd::kv },
    derives: [Clone, PartialEq, Eq, PartialOrd, Ord],
}
