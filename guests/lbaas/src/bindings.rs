//! The contract's types and functions, generated from `wit/`.
#![expect(missing_docs, reason = "a name that says it all has no text in `wit/`")]

trueup_guest::bindings! {
    world: "trueup:lbaas/lbaas-reconciler",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/lbaas"],
    with: { "trueup:host/clock@0.1.0": ::trueup_guest::bindings::trueup::host::clock },
    derives: [Clone, PartialEq, Eq, PartialOrd, Ord],
}
