//! Everything that a call may ask, as one argument: the renderers, the log and metrics.

use trueup_guest::Telemetry;

use crate::bindings::trueup::service::renderer;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};

/// A renderer's answer; the error is its own text.
pub(crate) type Rendered = Result<(), String>;

trueup_guest::world! {
    /// The guest's imports.
    pub(crate) trait World: Telemetry {
        fn add_service(service: &ContivService) -> Rendered = renderer::add_service;
        fn update_service(old: &ContivService, new: &ContivService) -> Rendered = renderer::update_service;
        fn delete_service(service: &ContivService) -> Rendered = renderer::delete_service;
        fn update_node_port_services(node_ips: &[String], services: &[ContivService]) -> Rendered =
            renderer::update_node_port_services;
        fn update_local_frontend_ifs(old: &[String], new: &[String]) -> Rendered = renderer::update_local_frontend_ifs;
        fn update_local_backend_ifs(old: &[String], new: &[String]) -> Rendered = renderer::update_local_backend_ifs;
        fn resync(event: &ResyncEvent) -> Rendered = renderer::resync;
    }
}
