//! The guest service: tracks Kubernetes services with their endpoints as this node sees them, and the interfaces of
//! clients and backends; sends the renderers exactly the changes of both.
//!
//! The renderers' desired state is a function of the inputs; the guest remembers what they acknowledged, and calls them
//! with the difference. The model is the service processor of Contiv-VPP; the specification lists the intended
//! differences.
//!
//! This file has the bindings, the exports and the imports, and decides nothing. `door` parses, `inputs` stores,
//! `combine` and `pods` are the function of the inputs, `view` stores their results with indexes of what an event
//! touches; `processor` and `rendering` call a [`World`]; `snapshot` is their text.
//!
//! ```text
//! event -> door -> inputs -> view: touched pods -> touched services -> combine --+-> differences -> renderers
//!                                                                acknowledged ---+        |
//!                                                                     ^-------------------+
//! ```
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use std::cell::RefCell;
use trueup_guest_common::panics;

use crate::bindings::exports::trueup::guest::lifecycle;
use crate::bindings::exports::trueup::service::processor::{self as exported, Event, State};
use crate::bindings::trueup::host::{log, metrics as meter};
use crate::bindings::trueup::kube::types::ObjectId;
use crate::bindings::trueup::service::renderer;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::processor::Processor;
use crate::settings::Settings;
use crate::world::{Rendered, World};

pub mod combine;
pub mod door;
pub mod id;
pub mod inputs;
pub mod interfaces;
pub mod pods;
pub mod processor;
pub mod redirects;
pub mod rendering;
pub mod settings;
#[cfg(test)]
mod simulated;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod view;
pub mod wiring;
pub mod world;

/// The contract's types and functions, generated from `wit/`.
#[expect(
    missing_docs,
    reason = "a case or parameter whose name says it all has no text in `wit/`"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: ["../../wit/host", "../../wit/guest", "../../wit/kube", "../../wit/etcd", "../../wit/nodesync", "../../wit/service"],
        world: "trueup:service/service-processor",
        additional_derives: [Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize],
        generate_all,
    });
}

thread_local! {
    /// The state of this instance. A component has one thread.
    static PROCESSOR: RefCell<Processor> = RefCell::new(Processor::new(Settings::default()));
}

/// Reads or changes the instance.
fn with<T>(call: impl FnOnce(&mut Processor) -> T) -> T {
    PROCESSOR.with_borrow_mut(call)
}

/// The exports.
struct Exports;

impl lifecycle::Guest for Exports {
    fn init(config: String) -> Result<(), String> {
        panics::report(|text| log::emit(log::Level::Error, text, &[]));
        let settings = Settings::read(&config)?;
        with(|processor| *processor = Processor::new(settings));
        Ok(())
    }

    fn snapshot() -> String {
        with(|processor| processor.snapshot())
    }

    fn restore(snapshot: String) -> Result<(), String> {
        with(|processor| processor.restore(&mut Imports, &snapshot))
    }
}

impl exported::Guest for Exports {
    fn resync(state: State) -> Result<(), String> {
        with(|processor| processor.resync(&mut Imports, state))
    }

    fn update(event: Event) -> Result<(), String> {
        with(|processor| processor.update(&mut Imports, event))
    }

    fn revert(pod: ObjectId) {
        with(|processor| processor.revert(&mut Imports, pod));
    }
}

/// The component's imports.
struct Imports;

impl World for Imports {
    fn add_service(&mut self, service: &ContivService) -> Rendered {
        renderer::add_service(service)
    }

    fn update_service(&mut self, old: &ContivService, new: &ContivService) -> Rendered {
        renderer::update_service(old, new)
    }

    fn delete_service(&mut self, service: &ContivService) -> Rendered {
        renderer::delete_service(service)
    }

    fn update_node_port_services(&mut self, node_ips: &[String], services: &[ContivService]) -> Rendered {
        renderer::update_node_port_services(node_ips, services)
    }

    fn update_local_frontend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered {
        renderer::update_local_frontend_ifs(old, new)
    }

    fn update_local_backend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered {
        renderer::update_local_backend_ifs(old, new)
    }

    fn resync(&mut self, event: &ResyncEvent) -> Rendered {
        renderer::resync(event)
    }

    fn gauge_set(&mut self, name: &str, value: f64) {
        meter::gauge_set(name, &[], value);
    }

    fn log(&mut self, level: log::Level, message: &str, fields: &[(&str, &str)]) {
        let field = |&(key, value): &(&str, &str)| log::Field {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        log::emit(level, message, &fields.iter().map(field).collect::<Vec<_>>());
    }
}

#[cfg(target_family = "wasm")]
bindings::export!(Exports with_types_in bindings);
