//! Everything that a call may ask, as one argument: the database, the log and metrics.
//!
//! `lib.rs` implements it with the component's imports, the tests with a simulation.

use trueup_guest::Telemetry;

use crate::bindings::trueup::etcd::kv::{Error, KeyValue, Operation};

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World: Telemetry {
    /// `kv.list-prefix`
    ///
    /// # Errors
    /// The database's error.
    fn list_prefix(&mut self, prefix: &str) -> Result<Vec<KeyValue>, Error>;
    /// `kv.commit`, without compares
    ///
    /// # Errors
    /// The database's error; the commit may have been stored.
    fn commit(&mut self, operations: &[Operation]) -> Result<bool, Error>;
}

/// The database's error in the form of answers.
#[must_use]
pub fn words(error: &Error) -> String {
    match error {
        Error::Unavailable(text) => format!("unavailable: {text}"),
        Error::AccessDenied(text) => format!("access denied: {text}"),
        Error::NotText(key) => format!("not text: {key}"),
        Error::TooManyOperations(limit) => format!("too many operations: {limit}"),
        Error::Invalid(text) => format!("invalid: {text}"),
    }
}
