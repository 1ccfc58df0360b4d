//! Everything that a call may ask, as one argument: the renderers, the log and metrics.
//!
//! `lib.rs` implements it with the component's imports, the tests with a simulation.

use trueup_guest::Telemetry;

use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};

/// A renderer's answer; the error is its own text.
pub type Rendered = Result<(), String>;

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World: Telemetry {
    /// `renderer.add-service`
    ///
    /// # Errors
    /// The renderer's error.
    fn add_service(&mut self, service: &ContivService) -> Rendered;
    /// `renderer.update-service`
    ///
    /// # Errors
    /// The renderer's error.
    fn update_service(&mut self, old: &ContivService, new: &ContivService) -> Rendered;
    /// `renderer.delete-service`
    ///
    /// # Errors
    /// The renderer's error.
    fn delete_service(&mut self, service: &ContivService) -> Rendered;
    /// `renderer.update-node-port-services`
    ///
    /// # Errors
    /// The renderer's error.
    fn update_node_port_services(&mut self, node_ips: &[String], services: &[ContivService]) -> Rendered;
    /// `renderer.update-local-frontend-ifs`
    ///
    /// # Errors
    /// The renderer's error.
    fn update_local_frontend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered;
    /// `renderer.update-local-backend-ifs`
    ///
    /// # Errors
    /// The renderer's error.
    fn update_local_backend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered;
    /// `renderer.resync`
    ///
    /// # Errors
    /// The renderer's error.
    fn resync(&mut self, event: &ResyncEvent) -> Rendered;
}
