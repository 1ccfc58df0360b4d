//! The world `trueup:toy/toy-reconciler`: its bindings, and its exports by name.

use serde::{Deserialize, Serialize};
use trueup_instance::{bindings, world};

/// The name of this guest in configuration and state, whatever name the component has.
pub(super) const NAME: &str = "toy";

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/etcd", "../../wit/toy"],
    "trueup:toy/toy-reconciler",
    {
        "trueup:etcd": trueup_capabilities::bindings::etcd,
    }
}

pub use bindings::exports::trueup::toy::reconciliation::{Desired, Error, Outcome};

/// The call that makes a key as it should be.
pub(super) const RECONCILE: &str = "reconciliation.reconcile";

/// Its arguments.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reconcile {
    pub(super) desired: Desired,
}

world! {
    "trueup:toy/toy-reconciler" as ToyReconciler, ToyReconcilerPre;
    imports: ["etcd/kv", "host/log", "host/metrics"];
    exports: ["guest/lifecycle", "toy/reconciliation"];
    is_stateless: true; trueup_toy_reconciliation:
    "reconciliation.reconcile": Reconcile => |e, s, a| e.call_reconcile(s, &a.desired);
}
