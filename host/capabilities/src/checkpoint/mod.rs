//! `trueup:checkpoint/store`: durable storage of one instance's own state.
//!
//! ```text
//! guest -> binding (grant, tape) -> Store: simulated, or on disk: file, database, json_file
//! operator -> tools: what is stored, copied between stores, an earlier checkpoint brought back
//! ```

mod accept;
mod anchor;
mod binding;
pub mod database;
mod disk;
#[cfg(test)]
mod faulty_disk_tests;
pub mod file;
pub mod fold;
mod format;
mod generations;
pub mod json_file;
mod lock;
mod place;
pub mod simulated;
mod syncs;
pub mod tools;

pub use lock::OpenError;

pub use crate::bindings::checkpoint::store::{Error, Saved};

use crate::Answer;

/// So many bytes the data of a checkpoint may have: some 500,000 allocations, far more than a node has addresses.
pub const DATA_BYTES_MAX: usize = 64 << 20;

/// So many bytes one entry may have: one that names every address of a large node at once has a tenth of it.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// So many replaced checkpoints are kept where the configuration says nothing.
pub const KEEP_GENERATIONS: u32 = 3;

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

/// Refuses what is longer than `max` bytes; `what` is whose length it is.
fn within(path: &std::path::Path, what: &str, text: &str, max: usize) -> Result<(), Error> {
    if text.len() <= max {
        return Ok(());
    }
    let path = path.display();
    Err(Error::Unavailable(format!(
        "{path}: {what} is too large: {} bytes",
        text.len()
    )))
}

/// Runs what waits for the disk where it holds up nobody. It runs to its end also where nobody waits for it any more.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::Unavailable(format!("the checkpoint storage stopped: {error}"))),
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
