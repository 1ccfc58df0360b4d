//! Everything that a call may ask, as one argument: the store, the container runtime, the clock, the log and metrics.
//!
//! `lib.rs` implements it with the component's imports, the tests with a simulation that has a virtual clock.

use trueup_guest::{Clock, Telemetry};

use crate::bindings::trueup::checkpoint::store::{Error as StoreError, Saved};
use crate::bindings::trueup::cri::sandboxes::Sandbox;

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World: Clock + Telemetry {
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
