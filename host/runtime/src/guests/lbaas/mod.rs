//! The world `trueup:lbaas/lbaas-reconciler`: its bindings, and its exports by name.

pub mod adapter;

use serde::Deserialize;
use serde_json::value::RawValue;
use trueup_engine::{Data, Engine, Guest, Instance};

use super::dispatch::{self, Answer, lifecycle};

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "lbaas";

/// The name of its world in WIT.
pub const WORLD: &str = "trueup:lbaas/lbaas-reconciler@0.1.0";

/// The worlds that a guest of this name may have.
pub(crate) const WORLDS: &[&str] = &[WORLD];

#[expect(missing_docs, reason = "generated from wit/, where the documentation stands")]
mod bindings {
    wasmtime::component::bindgen!({
        path: ["../../wit/host", "../../wit/guest", "../../wit/lbaas"],
        world: "trueup:lbaas/lbaas-reconciler",
        with: {
            "trueup:host": trueup_capabilities::bindings::host,
            "trueup:lbaas": trueup_capabilities::bindings::lbaas,
        },
        require_store_data_send: true,
        exports: { default: async },
        additional_derives: [Clone, PartialEq, serde::Serialize, serde::Deserialize],
    });
}

pub use bindings::exports::trueup::lbaas::reconciliation::{AddressPorts, Desired, Error, Plan, Port, Report, Target};
pub use bindings::{LbaasReconciler, LbaasReconcilerPre};

/// Links a guest of this world.
///
/// # Errors
/// If an import or export does not have the type in `wit/`.
pub fn link(engine: &Engine, guest: &Guest) -> wasmtime::Result<LbaasReconcilerPre<Data>> {
    let mut linker = trueup_engine::linker_for(engine, guest)?;
    LbaasReconciler::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |data: &mut Data| {
        &mut data.host
    })?;
    LbaasReconcilerPre::new(linker.instantiate_pre(guest.component())?)
}

/// The calls of a guest of this world besides `lifecycle`.
pub const CALLS: &[&str] = &[
    "reconciliation.reconcile",
    "reconciliation.reconcile-check",
    "reconciliation.status",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfDesired {
    desired: Desired,
}

pub(super) async fn dispatch(instance: &mut Instance<LbaasReconciler>, call: &str, args: &RawValue) -> Answer {
    if !CALLS.contains(&call) {
        return lifecycle!(instance, call, args, CALLS);
    }
    let desired = dispatch::args::<OfDesired>(call, args)?.desired;
    instance.enter();
    let (store, bindings) = instance.parts();
    let export = bindings.trueup_lbaas_reconciliation();
    match call {
        "reconciliation.reconcile" => {
            let result = export.call_reconcile(store, &desired).await;
            dispatch::answer(instance, call, result)
        }
        "reconciliation.reconcile-check" => {
            let result = export.call_reconcile_check(store, &desired).await;
            dispatch::answer(instance, call, result)
        }
        _ => {
            let result = export.call_status(store, &desired).await;
            dispatch::answer(instance, call, result)
        }
    }
}
