//! `trueup:checkpoint/store`: durable storage of one instance's own state.
//!
//! ```text
//! guest -> binding (grant, tape) -> Store: simulated, or on disk: file, json_file
//! operator -> tools: what is stored, copied between stores, an earlier checkpoint brought back
//! ```

mod anchor;
pub(crate) mod binding;
#[cfg(test)]
mod faulty_disk_tests;
pub mod file;
mod format;
mod generations;
pub mod json_file;
mod place;
pub mod tools;

use async_trait::async_trait;
use parking_lot::Mutex;

pub use crate::bindings::checkpoint::store::{Error, Saved};
pub use place::OpenError;

/// The maximum size of a checkpoint's data: some 500,000 allocations, far more than a node has addresses.
pub const DATA_BYTES_MAX: usize = 64 << 20;

/// The maximum size of one entry. An entry that names every address of a large node has a tenth of it.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The default number of replaced checkpoints to keep.
pub const KEEP_GENERATIONS: u32 = 3;

/// The storage of one instance. `checkpoint`, `append` and `restore` are the WIT functions and keep their promises,
/// except in a store that shares syncs: there an answered change may be written but not yet durable. In that case the
/// caller must await [`Store::durable`] before an answer of the instance leaves the host.
#[async_trait]
pub trait Store: Send + Sync {
    /// Replaces everything stored, atomically.
    async fn checkpoint(&self, data: &str) -> Result<(), Error>;

    /// Adds an entry after the last checkpoint.
    async fn append(&self, entry: &str) -> Result<(), Error>;

    /// What is stored; `None` if nothing ever was.
    async fn restore(&self) -> Result<Option<Saved>, Error>;

    /// The number of changes written since the store was opened. Always 0 if every change is durable before its answer.
    fn written(&self) -> u64 {
        0
    }

    /// Waits until the first `written` changes are durable. Concurrent callers share one sync.
    ///
    /// # Errors
    /// If they may be lost. The caller must then rebuild the instance from [`Store::restore`].
    async fn durable(&self, written: u64) -> Result<(), Error> {
        let _ = written;
        Ok(())
    }
}

/// Refuses text longer than `max` bytes; `what` names the text.
fn within(path: &std::path::Path, what: &str, text: &str, max: usize) -> Result<(), Error> {
    let bytes = text.len();
    if bytes <= max {
        return Ok(());
    }
    let text = format!("{}: {what} is too large: {bytes} bytes", path.display());
    Err(Error::Unavailable(text))
}

/// Runs blocking disk work on a separate thread. The work completes even if the caller no longer waits.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::Unavailable(format!("the checkpoint storage stopped: {error}"))))
}

impl Saved {
    /// Data without entries.
    fn of(data: impl Into<String>) -> Self {
        let data = data.into();
        let entries = Vec::new();
        Self { data, entries }
    }
}

impl Error {
    /// The error's case, as guests and operators read it.
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

/// A store in memory. Keeps its data as long as it lives; clones of the `Arc` around it share the storage.
#[derive(Debug, Default)]
pub struct Simulated(Mutex<Option<Saved>>);

impl Simulated {
    /// A store that holds `saved`; `None` means that nothing was ever stored.
    pub fn new(saved: Option<Saved>) -> Self {
        Self(Mutex::new(saved))
    }

    /// The currently stored data.
    pub fn saved(&self) -> Option<Saved> {
        self.0.lock().clone()
    }
}

#[async_trait]
impl Store for Simulated {
    async fn checkpoint(&self, data: &str) -> Result<(), Error> {
        *self.0.lock() = Some(Saved::of(data));
        Ok(())
    }

    async fn append(&self, entry: &str) -> Result<(), Error> {
        let mut saved = self.0.lock();
        let nothing = || Error::Unavailable("nothing to append to".to_owned());
        saved.as_mut().ok_or_else(nothing)?.entries.push(entry.to_owned());
        Ok(())
    }

    async fn restore(&self) -> Result<Option<Saved>, Error> {
        Ok(self.saved())
    }
}
