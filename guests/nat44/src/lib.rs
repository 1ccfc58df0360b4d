//! The guest nat44: renders services as NAT44 configuration that a Ligato VPP agent watches in etcd: a DNAT for each
//! service, one with identity mappings, and the global configuration. IPv4 only.
//!
//! Writes only changes, and repeats writes whose result is unknown. The model is the NAT44 renderer of contiv/vpp; the
//! specification lists the intended differences.
//!
//! This file has the exports, and decides nothing. `settings`, `values` and `dnat` are pure; `writes`
//! and `renderer` keep the state, have its text, and ask a [`world`].
//!
//! ```text
//! service ---> dnat ----+
//! interfaces -> dnat ---+-> values -> writes, without what the cache has -> kv.commit -> cache
//! ```
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::Imports;

use crate::bindings::exports::trueup::service::renderer as exported;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::renderer::Renderer;

mod bindings;
mod dnat;
mod renderer;
mod settings;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod values;
mod world;
mod writes;

trueup_guest::guest!(Renderer);

trueup_guest::exports! { exported::Guest {
    fn add_service(service: ContivService) -> Result<(), String> =
        |renderer| renderer.add_service(&mut Imports, &service);
    fn update_service(old: ContivService, new: ContivService) -> Result<(), String> =
        |renderer| renderer.update_service(&mut Imports, &old.id, &new);
    fn delete_service(service: ContivService) -> Result<(), String> =
        |renderer| renderer.delete_service(&mut Imports, &service.id);
    fn update_node_port_services(node_ips: Vec<String>, services: Vec<ContivService>) -> Result<(), String> =
        |renderer| renderer.update_node_port_services(&mut Imports, &node_ips, &services);
    fn update_local_frontend_ifs(_: Vec<String>, new: Vec<String>) -> Result<(), String> =
        |renderer| renderer.update_local_frontend_ifs(&mut Imports, new);
    fn update_local_backend_ifs(_: Vec<String>, new: Vec<String>) -> Result<(), String> =
        |renderer| renderer.update_local_backend_ifs(&mut Imports, new);
    fn resync(event: ResyncEvent) -> Result<(), String> = |renderer| renderer.resync(&mut Imports, event);
} }
