//! The guest nat44: renders services as NAT44 configuration that a Ligato VPP agent watches in etcd: a DNAT for each
//! service, one with identity mappings, and the global configuration. IPv4 only.
//!
//! Writes only changes, and repeats writes whose result is unknown. The model is the NAT44 renderer of contiv/vpp; the
//! specification lists the intended differences.
//!
//! This file has the bindings, the exports and the imports, and decides nothing. `settings`, `uplink`, `keys`,
//! `values`, `dnat` and `global` are pure; `cache`, `writes` and `renderer` keep the state and ask a [`World`];
//! `snapshot` is its text.
//!
//! ```text
//! service ---> dnat ----+
//! interfaces -> global -+-> values -> writes, without what the cache has -> kv.commit -> cache
//! ```
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use std::cell::RefCell;
use trueup_guest_common::panics;

use crate::bindings::exports::trueup::guest::lifecycle;
use crate::bindings::exports::trueup::service::renderer as exported;
use crate::bindings::trueup::etcd::kv::{self, Error, KeyValue, Operation};
use crate::bindings::trueup::host::{log, metrics as meter};
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::renderer::Renderer;
use crate::settings::Settings;
use crate::world::World;

pub mod cache;
pub mod dnat;
pub mod global;
pub mod keys;
pub mod metrics;
pub mod renderer;
pub mod settings;
#[cfg(test)]
mod simulated;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod uplink;
pub mod values;
pub mod world;
pub mod writes;

/// The contract's types and functions, generated from `wit/`.
#[expect(
    missing_docs,
    reason = "a case or parameter whose name says it all has no text in `wit/`"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: [
            "../../wit/host",
            "../../wit/guest",
            "../../wit/kube",
            "../../wit/etcd",
            "../../wit/nodesync",
            "../../wit/service",
        ],
        world: "trueup:service/etcd-renderer",
        // With serde, so that scenarios can be parsed into these types.
        additional_derives: [Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize],
        generate_all,
    });
}

thread_local! {
    /// The state of this instance; `None` before `init`. A component has one thread.
    static RENDERER: RefCell<Option<Renderer>> = const { RefCell::new(None) };
}

/// Reads or changes the instance.
fn with<T>(call: impl FnOnce(&mut Renderer) -> Result<T, String>) -> Result<T, String> {
    RENDERER.with_borrow_mut(|renderer| match renderer {
        Some(renderer) => call(renderer),
        // The host calls `init` first.
        None => Err("no settings yet: `lifecycle.init` comes first".to_owned()),
    })
}

/// The exports.
struct Exports;

impl lifecycle::Guest for Exports {
    fn init(config: String) -> Result<(), String> {
        panics::report(|text| log::emit(log::Level::Error, text, &[]));
        let settings = Settings::read(&config)?;
        RENDERER.set(Some(Renderer::new(settings)));
        Ok(())
    }

    fn snapshot() -> String {
        with(|renderer| Ok(renderer.snapshot())).unwrap_or_default()
    }

    fn restore(snapshot: String) -> Result<(), String> {
        with(|renderer| renderer.restore(&snapshot))
    }
}

impl exported::Guest for Exports {
    fn add_service(service: ContivService) -> Result<(), String> {
        with(|renderer| renderer.add_service(&mut Imports, &service))
    }

    fn update_service(old: ContivService, new: ContivService) -> Result<(), String> {
        with(|renderer| renderer.update_service(&mut Imports, &old.id, &new))
    }

    fn delete_service(service: ContivService) -> Result<(), String> {
        with(|renderer| renderer.delete_service(&mut Imports, &service.id))
    }

    fn update_node_port_services(node_ips: Vec<String>, services: Vec<ContivService>) -> Result<(), String> {
        with(|renderer| renderer.update_node_port_services(&mut Imports, &node_ips, &services))
    }

    fn update_local_frontend_ifs(_: Vec<String>, new: Vec<String>) -> Result<(), String> {
        with(|renderer| renderer.update_local_frontend_ifs(&mut Imports, new))
    }

    fn update_local_backend_ifs(_: Vec<String>, new: Vec<String>) -> Result<(), String> {
        with(|renderer| renderer.update_local_backend_ifs(&mut Imports, new))
    }

    fn resync(event: ResyncEvent) -> Result<(), String> {
        with(|renderer| renderer.resync(&mut Imports, event))
    }
}

/// The component's imports.
struct Imports;

impl World for Imports {
    fn list_prefix(&mut self, prefix: &str) -> Result<Vec<KeyValue>, Error> {
        kv::list_prefix(prefix)
    }

    fn commit(&mut self, operations: &[Operation]) -> Result<bool, Error> {
        kv::commit(&[], operations)
    }

    fn counter_add(&mut self, name: &str, delta: u64) {
        meter::counter_add(name, &[], delta);
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
