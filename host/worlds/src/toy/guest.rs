//! The world `trueup:toy/toy-reconciler`: its bindings, and its exports by name.

use serde::{Deserialize, Serialize};
use trueup_engine::Data;
use trueup_instance::{Worlds, bindings, world};

/// The name of this guest in configuration and state, whatever name the component has.
pub(super) const NAME: &str = "toy";

/// The worlds that a guest of this name may have.
pub(super) const WORLDS: Worlds = &[&WORLD];

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/etcd", "../../wit/toy"],
    "trueup:toy/toy-reconciler",
    {
        "trueup:etcd": trueup_capabilities::bindings::etcd,
    }
}

pub use bindings::exports::trueup::toy::reconciliation::{Desired, Error, Outcome};
pub use bindings::{ToyReconciler, ToyReconcilerPre};

/// The call that makes a key as it should be.
pub(super) const RECONCILE: &str = "reconciliation.reconcile";

/// Its arguments.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reconcile {
    pub(super) desired: Desired,
}

world! {
    "trueup:toy/toy-reconciler@0.1.0" as ToyReconciler, ToyReconcilerPre<Data>, ToyReconciler;
    imports: ["trueup:etcd/kv@0.1.0", "trueup:host/log@0.1.0", "trueup:host/metrics@0.1.0"];
    exports: ["trueup:guest/lifecycle@0.1.0", "trueup:toy/reconciliation@0.1.0"];
    is_stateless: true; trueup_toy_reconciliation:
    "reconciliation.reconcile": Reconcile => |e, s, a| e.call_reconcile(s, &a.desired);
}
