//! Everything that a call may ask, as one argument: the store, the container runtime, the clock, the log and metrics.

use trueup_guest::{Clock, Telemetry};

use crate::bindings::trueup::checkpoint::store::{self, Error as StoreError, Saved};
use crate::bindings::trueup::cri::sandboxes::{self, Sandbox};

trueup_guest::world! {
    /// The guest's imports.
    pub(crate) trait World: Clock + Telemetry {
        fn checkpoint(data: &str) -> Result<(), StoreError> = store::checkpoint;
        fn append(entry: &str) -> Result<(), StoreError> = store::append;
        fn restore() -> Result<Option<Saved>, StoreError> = store::restore;
        fn list_running() -> Result<Vec<Sandbox>, String> = sandboxes::list_running;
    }
}

/// The store's error as the contract's `backing-store` has it.
pub(crate) fn words(error: &StoreError) -> String {
    let (kind, text) = match error {
        StoreError::Unavailable(text) => ("unavailable", text),
        StoreError::Corrupt(text) => ("corrupt", text),
        StoreError::AccessDenied(text) => ("access-denied", text),
    };
    format!("{kind}: {text}")
}
