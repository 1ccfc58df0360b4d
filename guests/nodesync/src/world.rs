//! Everything that a call may ask, as one argument: the database, the log and metrics.

use trueup_guest::Telemetry;
use trueup_guest::bindings::trueup::etcd::kv::{self, Error, KeyValue};

trueup_guest::world! {
    /// The guest's imports.
    pub(crate) trait World: Telemetry {
        fn get(key: &str) -> Result<Option<KeyValue>, Error> = kv::get;
        fn list_keys(prefix: &str) -> Result<Vec<String>, Error> = kv::list_keys;
        fn put(key: &str, value: &str) -> Result<u64, Error> = kv::put;
        fn put_if_not_exists(key: &str, value: &str) -> Result<bool, Error> = kv::put_if_not_exists;
    }
}
