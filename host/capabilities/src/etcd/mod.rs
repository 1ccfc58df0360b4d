//! `trueup:etcd/kv`: a key-value database with etcd's semantics, and for the host alone, listings and watches of it.
//!
//! Every change of a store gets the next *revision*. A listing says at which one it was taken, and a watch tells what
//! changed after it; [`Follow`] puts the two together. Knows nothing of what is stored under which key.
//!
//! ```text
//! guest -> binding (tape, quota, grant) -> Api: simulated | embedded (redb) | remote (etcd)
//! host  -> Follow: listing, then watch after its revision; listing again where the history is gone
//! ```

mod binding;
pub mod embedded;
mod follow;
mod history;
pub mod remote;
mod rules;
pub mod simulated;
mod stored;

pub use crate::bindings::etcd::kv::{Compare, Error, KeyValue, Operation};
pub use follow::{Follow, Followed};
pub use history::{HISTORY_BYTES_MAX, HISTORY_REVISIONS_MAX};
pub use rules::{OPERATIONS_MAX, REQUEST_BYTES_MAX};
pub use stored::{Changes, Event, Listing, Stored};

use crate::Answer;

/// The revision of a store that nobody has changed yet: etcd counts from here.
pub const FIRST_REVISION: u64 = 1;

/// A store, real or simulated. The first seven methods are named as the WIT functions and promise what those promise; the
/// last two are the host's own.
///
/// No change is ever sent twice. Where the answer to one is lost, the error is `unavailable` and says that it is not known
/// whether the store has it: whoever tries again reads back first, or asks with a compare that only holds the first time.
pub trait Api: Send + Sync {
    /// What is stored under the key; none where nothing is.
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Result<Option<KeyValue>, Error>>;

    /// Every key with the prefix, by key, all of one revision. A single value that is no text fails it whole.
    fn list_prefix<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Vec<KeyValue>, Error>>;

    /// The names alone.
    fn list_keys<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Vec<String>, Error>>;

    /// Stores a value, and answers the revision that this was.
    fn put<'a>(&'a self, key: &'a str, value: &'a str) -> Answer<'a, Result<u64, Error>>;

    /// Stores a value where there is none, in one step; true where this call stored it.
    fn put_if_not_exists<'a>(&'a self, key: &'a str, value: &'a str) -> Answer<'a, Result<bool, Error>>;

    /// True where the key existed.
    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, Result<bool, Error>>;

    /// All operations in one step where every compare holds; false, and nothing done, where one does not.
    fn commit<'a>(&'a self, compares: &'a [Compare], operations: &'a [Operation]) -> Answer<'a, Result<bool, Error>>;

    /// As [`Api::list_prefix`], with the revision that it is of, and whatever the values are.
    fn listing<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Listing, Error>>;

    /// What changes under the prefix in revisions above `after`, whenever they come. Nothing is asked before
    /// [`Watch::next`] is.
    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch>;
}

/// The changes under one prefix, one revision after the other.
///
/// Nobody who reads a watch can tell which store it is of: revisions ascend, each comes once and whole, its events in the
/// order of the operations that made them.
pub trait Watch: Send {
    /// The next revision that changed something under the prefix. A store that can't be reached is waited for. May be
    /// dropped and called again: nothing is lost.
    ///
    /// # Errors
    /// Where this watch has come to its end: list again, and watch after that.
    fn next(&mut self) -> Answer<'_, Result<Changes, WatchEnd>>;
}

/// Why a watch tells nothing more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// The history between what was told last and now is not there any more, or never was.
    #[error("the changes after revision {after} are not there any more; list again")]
    Compacted {
        /// The revision up to which everything was told.
        after: u64,
    },
    /// The store does not let this host watch there.
    #[error("access denied: {0}")]
    Denied(String),
    /// The store's file can't be read.
    #[error("unavailable: {0}")]
    Failed(String),
}

impl Error {
    /// The case, as guests and operators read it.
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

#[cfg(test)]
mod equal_tests;
