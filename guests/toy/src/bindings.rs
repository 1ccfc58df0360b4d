//! The contract's types and functions, generated from `wit/`.
#![expect(
    missing_docs,
    reason = "a case or parameter whose name says it all has no text in `wit/`"
)]

trueup_guest::bindings! {
    world: "trueup:toy/toy-reconciler",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/etcd", "../../wit/toy"],
    with: {},
    derives: [Clone, PartialEq, Eq],
}
