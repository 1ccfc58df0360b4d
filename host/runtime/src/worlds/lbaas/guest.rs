//! The world `trueup:lbaas/lbaas-reconciler`: its bindings, and its exports by name.

use serde::Deserialize;
use trueup_engine::Data;

use crate::guests::world::{Worlds, bindings, world};

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "lbaas";

/// The worlds that a guest of this name may have.
pub(crate) const WORLDS: Worlds = &[&WORLD];

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/lbaas"],
    "trueup:lbaas/lbaas-reconciler",
    {
        "trueup:lbaas": trueup_capabilities::bindings::lbaas,
    }
}

pub use bindings::exports::trueup::lbaas::reconciliation::{AddressPorts, Desired, Error, Plan, Port, Report, Target};
pub use bindings::{LbaasReconciler, LbaasReconcilerPre};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfDesired {
    desired: Desired,
}

world! {
    "trueup:lbaas/lbaas-reconciler@0.1.0" as LbaasReconciler, LbaasReconcilerPre<Data>, LbaasReconciler;
    imports: [
        "trueup:host/clock@0.1.0",
        "trueup:host/log@0.1.0",
        "trueup:host/metrics@0.1.0",
        "trueup:host/random@0.1.0",
        "trueup:lbaas/api@0.1.0",
        "trueup:lbaas/types@0.1.0",
    ];
    exports: [
        "trueup:guest/lifecycle@0.1.0",
        "trueup:lbaas/reconciliation@0.1.0",
    ];
    is_stateless: true; trueup_lbaas_reconciliation:
    "reconciliation.reconcile": OfDesired => |e, s, a| e.call_reconcile(s, &a.desired);
    "reconciliation.reconcile-check": OfDesired => |e, s, a| e.call_reconcile_check(s, &a.desired);
    "reconciliation.status": OfDesired => |e, s, a| e.call_status(s, &a.desired);
}
