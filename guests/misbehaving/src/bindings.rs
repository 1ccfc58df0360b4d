//! The contract's types and functions, generated from `wit/`.

trueup_guest::bindings! {
    world: "trueup:lbaas/lbaas-reconciler",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/lbaas"],
    derives: [],
}
