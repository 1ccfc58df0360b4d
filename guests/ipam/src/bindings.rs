//! The contract's types and functions, generated from `wit/`.

trueup_guest::bindings! {
    world: "trueup:ipam/ipam-datastore",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/checkpoint", "../../wit/cri", "../../wit/ipam"],
    with: { "trueup:host/clock@0.1.0": ::trueup_guest::bindings::trueup::host::clock },
    // With serde, since a snapshot holds ENIs as the contract has them.
    derives: [Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize],
}
