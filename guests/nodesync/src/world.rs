//! Everything that a call may ask, as one argument: the database, the log and metrics.
//!
//! `lib.rs` implements it with the component's imports, the tests with a simulation.

use trueup_guest::Telemetry;

use crate::bindings::trueup::etcd::kv::{Error, KeyValue};

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World: Telemetry {
    /// `kv.get`
    ///
    /// # Errors
    /// The database's error.
    fn get(&mut self, key: &str) -> Result<Option<KeyValue>, Error>;
    /// `kv.list-keys`
    ///
    /// # Errors
    /// The database's error.
    fn list_keys(&mut self, prefix: &str) -> Result<Vec<String>, Error>;
    /// `kv.put`
    ///
    /// # Errors
    /// The database's error; it may have stored the value.
    fn put(&mut self, key: &str, value: &str) -> Result<u64, Error>;
    /// `kv.put-if-not-exists`
    ///
    /// # Errors
    /// The database's error; it may have stored the value.
    fn put_if_not_exists(&mut self, key: &str, value: &str) -> Result<bool, Error>;
}

/// The database's error in the contract's `database` form.
#[must_use]
pub fn words(error: &Error) -> String {
    match error {
        Error::Unavailable(text) => format!("unavailable: {text}"),
        Error::AccessDenied(text) => format!("access denied: {text}"),
        Error::NotText(text) => format!("not text: {text}"),
        Error::TooManyOperations(limit) => format!("too many operations: {limit}"),
        // The specification has no words for it: this guest makes no transaction, and its keys are never empty.
        Error::Invalid(text) => format!("invalid: {text}"),
    }
}
