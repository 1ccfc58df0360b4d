//! `trueup:checkpoint/store`: durable storage of one instance's own state.
//!
//! ```text
//! guest -> binding (grant, tape) -> Store: simulated or on disk
//! ```

mod binding;
pub mod simulated;

pub use crate::bindings::checkpoint::store::{Error, Saved};

use crate::Answer;

/// The storage of one instance. `checkpoint`, `append` and `restore` are the WIT functions and promise what those
/// promise, but for a store that shares syncs: there a change may be written and not yet durable when it is answered, and
/// whoever lets an answer of the instance out of the host first asks [`Store::durable`] for what was written before it.
pub trait Store: Send + Sync {
    /// Replaces everything stored, atomically.
    fn checkpoint<'a>(&'a self, data: &'a str) -> Answer<'a, Result<(), Error>>;

    /// Adds an entry after the last checkpoint.
    fn append<'a>(&'a self, entry: &'a str) -> Answer<'a, Result<(), Error>>;

    /// What is stored; none where nothing ever was.
    fn restore(&self) -> Answer<'_, Result<Option<Saved>, Error>>;

    /// How many changes were written since the store was opened. Where every change is durable before it is answered
    /// nobody needs to count: always 0.
    fn written(&self) -> u64 {
        0
    }

    /// Waits until the first `written` changes are durable. Callers that wait at the same time share one sync.
    ///
    /// # Errors
    /// Where they may be lost: the instance is to be rebuilt from what [`Store::restore`] answers.
    fn durable(&self, written: u64) -> Answer<'_, Result<(), Error>> {
        let _ = written;
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Error {
    /// The case, as guests and operators read it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Corrupt(_) => "corrupt",
            Self::AccessDenied(_) => "access-denied",
        }
    }

    /// What went wrong.
    pub fn text(&self) -> &str {
        let (Self::Unavailable(text) | Self::Corrupt(text) | Self::AccessDenied(text)) = self;
        text
    }
}
