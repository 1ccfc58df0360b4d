//! Everything that a call may ask, as one argument: the database, the log and metrics.

use trueup_guest::Telemetry;
use trueup_guest::bindings::trueup::etcd::kv::{self, Error, KeyValue, Operation};

trueup_guest::world! {
    /// The guest's imports.
    pub(crate) trait World: Telemetry {
        fn list_prefix(prefix: &str) -> Result<Vec<KeyValue>, Error> = kv::list_prefix;
        fn commit(operations: &[Operation]) -> Result<bool, Error> = commit;
    }
}

/// A transaction that compares nothing.
fn commit(operations: &[Operation]) -> Result<bool, Error> {
    kv::commit(&[], operations)
}
