//! The guest lbaas: reconciles load balancers with a Kubernetes service.
//!
//! Each load balancer and port gets one backend and one frontend, each external address a bind, each node a server. All
//! carry the service's tag; the guest sees and touches nothing else. The model is the reconciliation of Anexia's
//! Kubernetes cloud controller manager.
//!
//! This file has the bindings, the exports and the imports, and decides nothing. `calls` has the three exported
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

use std::cell::Cell;
use trueup_guest_common::panics;

use crate::bindings::exports::trueup::guest::lifecycle;
use crate::bindings::exports::trueup::lbaas::reconciliation::{self, AddressPorts, Desired, Error, Plan, Report};
use crate::bindings::trueup::host::{clock, log, metrics as meter, random};
use crate::bindings::trueup::lbaas::api;
use crate::bindings::trueup::lbaas::types::{Object, ObjectRef, Spec, State};
pub use crate::check::check;
use crate::settings::Settings;
use crate::world::World;

pub mod backoff;
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
pub mod snapshot;
pub mod status;
#[cfg(test)]
mod tests;
pub mod wish;
pub mod world;

/// The contract's types and functions, generated from `wit/`.
#[expect(
    missing_docs,
    reason = "a case or parameter whose name says it all has no text in `wit/`"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: ["../../wit/host", "../../wit/guest", "../../wit/lbaas"],
        world: "trueup:lbaas/lbaas-reconciler",
        additional_derives: [Clone, PartialEq, Eq, PartialOrd, Ord],
        generate_all,
    });
}

thread_local! {
    /// The settings from `init`. A component has one thread.
    static SETTINGS: Cell<Settings> = const { Cell::new(Settings::DEFAULT) };
}

/// The exports.
struct Lbaas;

impl lifecycle::Guest for Lbaas {
    fn init(config: String) -> Result<(), String> {
        panics::report(|text| log::emit(log::Level::Error, text, &[]));
        SETTINGS.set(Settings::read(&config)?);
        Ok(())
    }

    fn snapshot() -> String {
        snapshot::write()
    }

    fn restore(snapshot: String) -> Result<(), String> {
        snapshot::read(&snapshot)
    }
}

impl reconciliation::Guest for Lbaas {
    fn reconcile_check(desired: Desired) -> Result<Plan, Error> {
        calls::reconcile_check(&mut Imports, &SETTINGS.get(), &desired)
    }

    fn reconcile(mut desired: Desired) -> Result<Report, Error> {
        if cfg!(feature = "forgets-a-port") {
            desired.ports.pop();
        }
        calls::reconcile(&mut Imports, &SETTINGS.get(), &desired)
    }

    fn status(desired: Desired) -> Result<Vec<AddressPorts>, Error> {
        calls::status(&mut Imports, &desired)
    }
}

/// The component's imports.
struct Imports;

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

    fn now_ms(&mut self) -> u64 {
        clock::now_ms()
    }

    fn sleep_ms(&mut self, duration_ms: u64) {
        clock::sleep_ms(duration_ms);
    }

    fn next_u64(&mut self) -> u64 {
        random::next_u64()
    }

    fn counter_add(&mut self, name: &str, label: (&str, &str), delta: u64) {
        meter::counter_add(name, &[labelled(label)], delta);
    }

    fn gauge_set(&mut self, name: &str, label: (&str, &str), value: f64) {
        meter::gauge_set(name, &[labelled(label)], value);
    }

    fn histogram_observe(&mut self, name: &str, value: f64) {
        meter::histogram_observe(name, &[], value);
    }

    fn log(&mut self, level: log::Level, message: &str, fields: &[(&str, &str)]) {
        let field = |&(key, value): &(&str, &str)| log::Field {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        log::emit(level, message, &fields.iter().map(field).collect::<Vec<_>>());
    }
}

fn labelled((key, value): (&str, &str)) -> meter::Label {
    meter::Label {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

#[cfg(target_family = "wasm")]
bindings::export!(Lbaas with_types_in bindings);
