//! The guest nftables: renders services in the Linux kernel, as maps and chains of this node's packet filter.
//!
//! The kernel looks up a connection to a service's address in a map, and sends it through the chains of that service to
//! one of its endpoints; established flows keep theirs. This renderer has no original: its structure follows
//! kube-proxy's nftables mode, and the specification describes all of it.
//!
//! This file has the exports, and decides nothing. `names`, `render`, `ruleset`, `step` and `change` are pure;
//! `transaction` produces the text for nft; `renderer` keeps the state, has its text, and asks a `World`.
//!
//! ```text
//! service -> render -> chains, claims ----------+
//!            acknowledged services, all claims -+-> step -> change -> transaction -> nftables.apply
//! ```
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::Imports;

use crate::bindings::exports::trueup::service::renderer as exported;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::renderer::Renderer;

mod bindings;
mod change;
mod names;
mod render;
mod renderer;
mod ruleset;
mod settings;
#[cfg(test)]
mod simulated;
mod step;
#[cfg(test)]
mod tests;
mod transaction;

trueup_guest::guest!(Renderer);

trueup_guest::exports! { exported::Guest {
    fn add_service(service: ContivService) -> Result<(), String> =
        |renderer| renderer.add_service(&mut Imports, service);
    fn update_service(old: ContivService, new: ContivService) -> Result<(), String> =
        |renderer| renderer.update_service(&mut Imports, old.id, new);
    fn delete_service(service: ContivService) -> Result<(), String> =
        |renderer| renderer.delete_service(&mut Imports, service.id);
    /// Node ports apply to every local address, whatever the nodes.
    fn update_node_port_services(_: Vec<String>, _: Vec<ContivService>) -> Result<(), String> = |_| Ok(());
    /// Rules apply to every interface.
    fn update_local_frontend_ifs(_: Vec<String>, _: Vec<String>) -> Result<(), String> = |_| Ok(());
    /// Rules apply to every interface.
    fn update_local_backend_ifs(_: Vec<String>, _: Vec<String>) -> Result<(), String> = |_| Ok(());
    fn resync(event: ResyncEvent) -> Result<(), String> = |renderer| renderer.resync(&mut Imports, event.services);
} }
