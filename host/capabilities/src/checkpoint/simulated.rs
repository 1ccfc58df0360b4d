//! A store in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Error, Saved, Store};
use async_trait::async_trait;

/// Keeps its data as long as it lives; clones of the `Arc` around it share the storage.
#[derive(Debug, Default)]
pub struct Simulated(Mutex<Option<Saved>>);

impl Simulated {
    /// A store that holds `saved`; `None` means that nothing was ever stored.
    pub fn new(saved: Option<Saved>) -> Self {
        Self(Mutex::new(saved))
    }

    /// The currently stored data.
    pub fn saved(&self) -> Option<Saved> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Saved>> {
        // Each change is one assignment or one push, so a panic elsewhere leaves no partial change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Simulated {
    async fn checkpoint(&self, data: &str) -> Result<(), Error> {
        *self.lock() = Some(Saved::of(data));
        Ok(())
    }

    async fn append(&self, entry: &str) -> Result<(), Error> {
        let mut saved = self.lock();
        let nothing = || Error::Unavailable("nothing to append to".to_owned());
        let entries = &mut saved.as_mut().ok_or_else(nothing)?.entries;
        entries.push(entry.to_owned());
        Ok(())
    }

    async fn restore(&self) -> Result<Option<Saved>, Error> {
        Ok(self.saved())
    }
}
