//! A store in memory.

use parking_lot::Mutex;

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
        let entries = &mut saved.as_mut().ok_or_else(nothing)?.entries;
        entries.push(entry.to_owned());
        Ok(())
    }

    async fn restore(&self) -> Result<Option<Saved>, Error> {
        Ok(self.saved())
    }
}
