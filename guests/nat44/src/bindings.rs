//! The contract's types and functions, generated from `wit/`.
#![expect(
    missing_docs,
    reason = "a case or parameter whose name says it all has no text in `wit/`"
)]

trueup_guest::bindings! {
    world: "trueup:service/etcd-renderer",
    wit: [
        "../../wit/host",
        "../../wit/guest",
        "../../wit/kube",
        "../../wit/etcd",
        "../../wit/nodesync",
        "../../wit/service",
    ],
    with: {},
    derives: [Clone, PartialEq, Eq, PartialOrd, Ord],
}
