//! Everything that a call may ask, as one argument: the store, the container runtime, the clock, the log and metrics.
//!
//! `lib.rs` implements it with the component's imports, the tests with a simulation that has a virtual clock.

use crate::bindings::trueup::checkpoint::store::{Error as StoreError, Saved};
use crate::bindings::trueup::cri::sandboxes::Sandbox;
use crate::bindings::trueup::host::log::Level;

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World {
    /// `store.checkpoint`
    ///
    /// # Errors
    /// The store's error.
    fn checkpoint(&mut self, data: &str) -> Result<(), StoreError>;
    /// `store.append`
    ///
    /// # Errors
    /// The store's error.
    fn append(&mut self, entry: &str) -> Result<(), StoreError>;
    /// `store.restore`
    ///
    /// # Errors
    /// The store's error.
    fn restore(&mut self) -> Result<Option<Saved>, StoreError>;
    /// `sandboxes.list-running`
    ///
    /// # Errors
    /// The container runtime's error.
    fn list_running(&mut self) -> Result<Vec<Sandbox>, String>;

    /// `clock.now-ms`
    fn now_ms(&mut self) -> u64;

    /// `metrics.counter-add`, without labels
    fn counter_add(&mut self, name: &str, delta: u64);
    /// `metrics.gauge-set`, without labels
    fn gauge_set(&mut self, name: &str, value: f64);
    /// `log.emit`
    fn log(&mut self, level: Level, message: &str, fields: &[(&str, &str)]);
}

/// The store's error as the contract's `backing-store` has it.
#[must_use]
pub fn words(error: &StoreError) -> String {
    let (kind, text) = match error {
        StoreError::Unavailable(text) => ("unavailable", text),
        StoreError::Corrupt(text) => ("corrupt", text),
        StoreError::AccessDenied(text) => ("access-denied", text),
    };
    format!("{kind}: {text}")
}
