//! The database's errors in words, for guests whose world has `trueup:etcd/kv`.

use crate::bindings::trueup::etcd::kv::Error;

/// One line, for answers and the log: `unavailable: no leader`.
pub fn words(error: &Error) -> String {
    match error {
        Error::Unavailable(text) => format!("unavailable: {text}"),
        Error::AccessDenied(text) => format!("access denied: {text}"),
        Error::NotText(key) => format!("not text: {key}"),
        Error::TooManyOperations(limit) => format!("too many operations: {limit}"),
        Error::Invalid(text) => format!("invalid: {text}"),
    }
}
