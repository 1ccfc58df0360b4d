//! The guest lbaas: reconciles load balancers with a Kubernetes service.
//!
//! Each load balancer and port gets one backend and one frontend, each external address a bind, each node a server. All
//! carry the service's tag; the guest sees and touches nothing else. The model is the reconciliation of Anexia's
//! Kubernetes cloud controller manager.
//!
//! This file has the exports, and decides nothing. `calls` has the three exported
//! functions; `input`, `own` and `plan` are pure; `reconcile`, `destroy` and `create` track the progress of a
//! `reconcile` and ask a `World`.
//!
//! ```text
//! desired -> input -> desired state --+
//! list -> own resources -----+-> plan -> reconcile-check | reconcile (rounds: reset, destroy, create, wait)
//! ```
//!
//! Between calls the guest keeps only its settings.
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::{Imports, Stateless};

use crate::bindings::exports::trueup::lbaas::reconciliation::{self, AddressPorts, Desired, Error, Plan, Report};
use crate::settings::Settings;

pub mod backoff;
pub mod bindings;
pub mod calls;
mod create;
pub mod desired;
mod destroy;
pub mod input;
pub mod metrics;
pub mod order;
pub mod outcome;
pub mod own;
pub mod plan;
pub mod reconcile;
pub mod settings;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
pub mod world;

trueup_guest::guest!(Settings);

impl Stateless for Settings {
    const NAME: &str = "lbaas";
    const VERSION: u32 = settings::VERSION;

    fn init(config: &str) -> Result<Self, String> {
        Self::read(config)
    }
}

impl reconciliation::Guest for Exports {
    fn reconcile_check(desired: Desired) -> Result<Plan, Error> {
        with(|settings| calls::reconcile_check(&mut Imports, settings, &desired))
    }

    fn reconcile(mut desired: Desired) -> Result<Report, Error> {
        if cfg!(feature = "forgets-a-port") {
            desired.ports.pop();
        }
        with(|settings| calls::reconcile(&mut Imports, settings, &desired))
    }

    fn status(desired: Desired) -> Result<Vec<AddressPorts>, Error> {
        calls::status(&mut Imports, &desired)
    }
}
