//! What every store can do.

use super::stored::{Changes, Listing};
use crate::bindings::etcd::kv::{Compare, Error, KeyValue, Operation};
use async_trait::async_trait;

/// The revision of an unchanged store: etcd counts from here.
pub const FIRST_REVISION: u64 = 1;

/// The result of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Whether its compares held.
    pub held: bool,
    /// Whether anything changed.
    pub changed: bool,
    /// The store's revision after it.
    pub revision: u64,
}

/// A store, real or simulated. `get`, `list_prefix`, `list_keys`, `put`, `put_if_not_exists`, `delete` and `commit`
/// have the names and promises of the WIT functions; the rest is for the host alone.
///
/// A change is never sent twice. If its answer is lost, the error is `unavailable` and says that the outcome is
/// unknown. Before a retry, the caller must read back, or use a compare that only holds the first time.
#[async_trait]
pub trait Api: Send + Sync {
    /// The value of the key; `None` if there is none.
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, Error>;

    /// Everything under the prefix, sorted by key, all of one revision, with values of any kind.
    async fn listing(&self, prefix: &str) -> Result<Listing, Error>;

    /// Applies all operations atomically if every compare holds. Otherwise does nothing.
    async fn transact(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error>;

    /// The changes under the prefix in revisions above `after`, as they come. Sends no request before [`Watch::next`].
    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch>;

    /// As [`Api::listing`]. A single value that is not text fails the whole call.
    async fn list_prefix(&self, prefix: &str) -> Result<Vec<KeyValue>, Error> {
        self.listing(prefix).await?.into_texts()
    }

    /// The names only.
    async fn list_keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.listing(prefix).await?.into_keys()
    }

    /// Stores a value and returns its revision.
    async fn put(&self, key: &str, value: &str) -> Result<u64, Error> {
        let put = [Operation::Put((key.to_owned(), value.to_owned()))];
        Ok(self.transact(&[], &put).await?.revision)
    }

    /// Atomically stores a value if there is none. Returns true if this call stored it.
    async fn put_if_not_exists(&self, key: &str, value: &str) -> Result<bool, Error> {
        let absent = [Compare::Absent(key.to_owned())];
        let put = [Operation::Put((key.to_owned(), value.to_owned()))];
        Ok(self.transact(&absent, &put).await?.held)
    }

    /// Returns true if the key existed.
    async fn delete(&self, key: &str) -> Result<bool, Error> {
        let delete = [Operation::Delete(key.to_owned())];
        Ok(self.transact(&[], &delete).await?.changed)
    }

    /// As [`Api::transact`]. Returns false if a compare did not hold.
    async fn commit(&self, compares: &[Compare], operations: &[Operation]) -> Result<bool, Error> {
        Ok(self.transact(compares, operations).await?.held)
    }
}

/// The changes under one prefix, one revision after the other.
///
/// Watches of all stores behave alike: revisions ascend, each comes once and whole, and its events have the order of
/// the operations that made them.
#[async_trait]
pub trait Watch: Send {
    /// The next revision that changed something under the prefix. Waits while the store is unreachable. Cancel-safe:
    /// dropping it loses nothing.
    ///
    /// # Errors
    /// If this watch has ended: list again, and watch after that.
    async fn next(&mut self) -> Result<Changes, WatchEnd>;
}

/// Why a watch has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEnd {
    /// The history after the last reported revision no longer exists, or never did.
    Compacted {
        /// The revision up to which everything was reported.
        after: u64,
    },
    /// The store denies this host the watch, or can't be read.
    Failed(Error),
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
