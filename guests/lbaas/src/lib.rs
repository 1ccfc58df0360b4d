//! The guest lbaas: reconciles load balancers with a Kubernetes service.
//!
//! Each load balancer and port gets one backend and one frontend, each external address a bind, each node a server. All
//! carry the service's tag; the guest sees and touches nothing else. The model is the reconciliation of Anexia's
//! Kubernetes cloud controller manager.
//!
//! This file has the exports and the imports, and decides nothing. `calls` has the three exported
//! functions; `input`, `own`, `plan`, `check` and `status` are pure; `reconcile`, `destroy` and `create` track the
//! progress of a `reconcile` and ask a `World`.
//!
//! ```text
//! desired -> input -> wish --+
//! list -> own resources -----+-> plan -> check | reconcile (rounds: reset, destroy, create, wait)
//! ```
//!
//! Between calls the guest keeps only its settings.
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::bindings::trueup::host::clock;
use trueup_guest::{Imports, Stateless};

use crate::bindings::exports::trueup::lbaas::reconciliation::{self, AddressPorts, Desired, Error, Plan, Report};
use crate::bindings::trueup::host::random;
use crate::bindings::trueup::lbaas::api;
use crate::bindings::trueup::lbaas::types::{Object, ObjectRef, Spec, State};
pub use crate::check::check;
use crate::settings::Settings;
use crate::world::World;

pub mod backoff;
pub mod bindings;
pub mod calls;
pub mod check;
mod create;
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
pub mod status;
#[cfg(test)]
mod tests;
pub mod wish;
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

impl World for Imports {
    fn load_balancer(&mut self, identifier: &str) -> Result<State, api::Error> {
        api::load_balancer(identifier)
    }

    fn list_tagged(&mut self, tag: &str) -> Result<Vec<Object>, api::Error> {
        api::list_tagged(tag)
    }

    fn get(&mut self, refs: &[ObjectRef]) -> Vec<Result<Object, api::Error>> {
        api::get(refs)
    }

    fn create(&mut self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, api::Error>> {
        api::create(specs, tags)
    }

    fn reset(&mut self, refs: &[ObjectRef]) -> Vec<Result<(), api::Error>> {
        api::reset(refs)
    }

    fn destroy(&mut self, refs: &[ObjectRef]) -> Vec<Result<(), api::Error>> {
        api::destroy(refs)
    }

    fn sleep_ms(&mut self, duration_ms: u64) {
        clock::sleep_ms(duration_ms);
    }

    fn next_u64(&mut self) -> u64 {
        random::next_u64()
    }
}
