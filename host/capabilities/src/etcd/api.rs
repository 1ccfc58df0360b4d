//! What every store can do.

use super::stored::{Changes, Listing};
use crate::Answer;
use crate::bindings::etcd::kv::{Compare, Error, KeyValue, Operation};

/// The revision of an unchanged store: etcd counts from here.
pub const FIRST_REVISION: u64 = 1;

/// A store, real or simulated. The first seven methods have the names and promises of the WIT functions; the last two
/// are for the host alone.
///
/// A change is never sent twice. If its answer is lost, the error is `unavailable` and says that the outcome is
/// unknown. Before a retry, the caller must read back, or use a compare that only holds the first time.
pub trait Api: Send + Sync {
    /// The value of the key; `None` if there is none.
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Result<Option<KeyValue>, Error>>;

    /// Every key with the prefix, sorted by key, all of one revision. A single value that is not text fails the whole
    /// call.
    fn list_prefix<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Vec<KeyValue>, Error>>;

    /// The names only.
    fn list_keys<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Vec<String>, Error>>;

    /// Stores a value and returns its revision.
    fn put<'a>(&'a self, key: &'a str, value: &'a str) -> Answer<'a, Result<u64, Error>>;

    /// Atomically stores a value if there is none. Returns true if this call stored it.
    fn put_if_not_exists<'a>(&'a self, key: &'a str, value: &'a str) -> Answer<'a, Result<bool, Error>>;

    /// Returns true if the key existed.
    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, Result<bool, Error>>;

    /// Applies all operations atomically if every compare holds. Otherwise does nothing and returns false.
    fn commit<'a>(&'a self, compares: &'a [Compare], operations: &'a [Operation]) -> Answer<'a, Result<bool, Error>>;

    /// As [`Api::list_prefix`], with its revision, and with values of any kind.
    fn listing<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Listing, Error>>;

    /// The changes under the prefix in revisions above `after`, as they come. Sends no request before [`Watch::next`].
    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch>;
}

/// The changes under one prefix, one revision after the other.
///
/// Watches of all stores behave alike: revisions ascend, each comes once and whole, and its events have the order of
/// the operations that made them.
pub trait Watch: Send {
    /// The next revision that changed something under the prefix. Waits while the store is unreachable. Cancel-safe:
    /// dropping it loses nothing.
    ///
    /// # Errors
    /// If this watch has ended: list again, and watch after that.
    fn next(&mut self) -> Answer<'_, Result<Changes, WatchEnd>>;
}

/// Why a watch has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// The history after the last reported revision no longer exists, or never did.
    #[error("the changes after revision {after} are not there any more; list again")]
    Compacted {
        /// The revision up to which everything was reported.
        after: u64,
    },
    /// The store denies this host the watch.
    #[error("access denied: {0}")]
    Denied(String),
    /// The store's file can't be read.
    #[error("unavailable: {0}")]
    Failed(String),
}

impl Error {
    /// The error's case, as guests and operators read it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::AccessDenied(_) => "access-denied",
            Self::NotText(_) => "not-text",
            Self::TooManyOperations(_) => "too-many-operations",
            Self::Invalid(_) => "invalid",
        }
    }
}
