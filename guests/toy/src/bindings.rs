//! The contract's types and functions, generated from `wit/`.

trueup_guest::bindings! {
    world: "trueup:toy/toy-reconciler",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/etcd", "../../wit/toy"],
    derives: [Clone, PartialEq, Eq],
}
