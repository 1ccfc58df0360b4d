//! The contract's types and functions, generated from `wit/`.
#![expect(missing_docs, reason = "a name that says it all has no text in `wit/`")]

trueup_guest::bindings! {
    world: "trueup:neg/neg-syncer",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/neg"],
    with: { "trueup:host/clock@0.1.0": ::trueup_guest::bindings::trueup::host::clock },
    // With serde, since a snapshot holds locations and endpoints.
    derives: [Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize],
}
