//! The contract's types and functions, generated from `wit/`.

trueup_guest::bindings! {
    world: "trueup:toy/toy-reconciler",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/etcd", "../../wit/toy"],
    with: { "trueup:etcd/kv@0.1.0": ::trueup_guest::bindings::trueup::etcd::kv },
    derives: [Clone, PartialEq, Eq],
}
