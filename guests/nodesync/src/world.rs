//! Everything that a call may ask, as one argument: the database, the log and metrics.

use trueup_guest::Telemetry;

use crate::bindings::trueup::etcd::kv::{self, Error, KeyValue};

trueup_guest::world! {
    /// The guest's imports.
    pub(crate) trait World: Telemetry {
        fn get(key: &str) -> Result<Option<KeyValue>, Error> = kv::get;
        fn list_keys(prefix: &str) -> Result<Vec<String>, Error> = kv::list_keys;
        fn put(key: &str, value: &str) -> Result<u64, Error> = kv::put;
        fn put_if_not_exists(key: &str, value: &str) -> Result<bool, Error> = kv::put_if_not_exists;
    }
}

/// The database's error in the contract's `database` form.
pub(crate) fn words(error: &Error) -> String {
    match error {
        Error::Unavailable(text) => format!("unavailable: {text}"),
        Error::AccessDenied(text) => format!("access denied: {text}"),
        Error::NotText(text) => format!("not text: {text}"),
        Error::TooManyOperations(limit) => format!("too many operations: {limit}"),
        // The specification has no words for it: this guest makes no transaction, and its keys are never empty.
        Error::Invalid(text) => format!("invalid: {text}"),
    }
}
