//! Everything that a call may ask, as one argument: the renderers, the log and metrics.
//!
//! `lib.rs` implements it with the component's imports, the tests with a simulation.

use crate::bindings::trueup::host::log::Level;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};

/// What a renderer answers: the error is its own text.
pub type Rendered = Result<(), String>;

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World {
    /// `renderer.add-service`
    ///
    /// # Errors
    /// As a renderer answers.
    fn add_service(&mut self, service: &ContivService) -> Rendered;
    /// `renderer.update-service`
    ///
    /// # Errors
    /// As a renderer answers.
    fn update_service(&mut self, old: &ContivService, new: &ContivService) -> Rendered;
    /// `renderer.delete-service`
    ///
    /// # Errors
    /// As a renderer answers.
    fn delete_service(&mut self, service: &ContivService) -> Rendered;
    /// `renderer.update-node-port-services`
    ///
    /// # Errors
    /// As a renderer answers.
    fn update_node_port_services(&mut self, node_ips: &[String], services: &[ContivService]) -> Rendered;
    /// `renderer.update-local-frontend-ifs`
    ///
    /// # Errors
    /// As a renderer answers.
    fn update_local_frontend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered;
    /// `renderer.update-local-backend-ifs`
    ///
    /// # Errors
    /// As a renderer answers.
    fn update_local_backend_ifs(&mut self, old: &[String], new: &[String]) -> Rendered;
    /// `renderer.resync`
    ///
    /// # Errors
    /// As a renderer answers.
    fn resync(&mut self, event: &ResyncEvent) -> Rendered;

    /// `metrics.gauge-set`, without labels
    fn gauge_set(&mut self, name: &str, value: f64);
    /// `log.emit`
    fn log(&mut self, level: Level, message: &str, fields: &[(&str, &str)]);

    /// A warning of what was left out.
    fn warn(&mut self, message: &str, fields: &[(&str, &str)]) {
        self.log(Level::Warn, message, fields);
    }
}
