//! The real backend of `trueup:neg/api`: Compute Engine over its REST API, version 1.
//!
//! Does not decide what should exist; the guest does. Checks no grant and keeps no journal; the binding does. From the
//! contract inwards:
//!
//! ```text
//! mod, instance (the four functions) -> request (one request: pace, tries, token) -> http::client -> Compute Engine
//!                                       wire: its JSON and paths
//! watch (operations to their end)    -> request;  operations: the running ones, on disk
//! ```
//!
//! If several hosts run and this one may not act any more, guests' requests are withheld, as in `lbaas/anexia`. Polling
//! operations and fetching tokens change nothing and continue.

mod credentials;
mod instance;
mod operations;
mod request;
mod settings;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use trueup_base::fence::Fence;

pub use self::credentials::{CREDENTIALS_ENV, Credentials};
pub use self::operations::{End, Operations, Started, StoreError};
use self::request::Requests;
pub use self::settings::{ENDPOINT_DEFAULT, Settings};
pub use self::watch::Ended;
use self::watch::{Tasks, Watch, blocking};
use super::{Api, Reads};
pub use crate::remote::SettingsError;

/// The maximum number of unacknowledged ends; above it, further operations are polled until there is room.
const ENDS_WAITING_MAX: usize = 1_024;

/// Compute Engine. One for the whole host: its requests share one pace. All clones share it; polling of operations ends
/// when the last is dropped.
#[derive(Clone)]
pub struct Compute {
    watch: Arc<Watch>,
    tasks: Tasks,
    fence: Fence,
    /// The owner of the operations that it starts; empty if it starts none.
    instance: String,
}

impl Compute {
    /// Checks the settings, and resumes polling the operations in the store. Guests' requests are withheld while
    /// `fence` is closed. The channel delivers ends of operations, including those in the store. Each comes again after
    /// a restart until [`Compute::acknowledge`] acknowledges it.
    ///
    /// Must be called within a tokio runtime. Blocks while the store is read.
    ///
    /// # Errors
    /// One line: the invalid setting, or why the store can't be read.
    pub fn new(
        settings: Settings,
        credentials: Credentials,
        store: Arc<Operations>,
        fence: Fence,
    ) -> Result<(Self, mpsc::Receiver<Ended>), SettingsError> {
        let requests = Requests::new(&settings, credentials)?;
        let stored = store.all().map_err(|error| SettingsError(error.to_string()))?;
        let (ends, ended) = mpsc::channel(ENDS_WAITING_MAX);
        let watch = Arc::new(Watch {
            requests,
            settings,
            store,
            ends,
            watched: Mutex::default(),
            in_order: Mutex::default(),
        });
        let tasks = Tasks::default();
        watch.resume(stored, &tasks);
        let compute = Self {
            watch,
            tasks,
            fence,
            instance: String::new(),
        };
        Ok((compute, ended))
    }

    /// The NEGs for one instance: it owns the operations that it starts.
    pub fn of(&self, instance: &str) -> Arc<dyn Api> {
        Arc::new(Self {
            instance: instance.to_owned(),
            ..self.clone()
        })
    }

    /// The NEGs for a read-only caller.
    pub fn reads(&self) -> Arc<dyn Reads> {
        Arc::new(self.clone())
    }

    /// The same API, pinned to the current epoch, such as for one job: once others may have acted it sends nothing
    /// more, even if this host acts again.
    pub fn of_this_epoch(&self) -> Self {
        Self {
            fence: self.fence.of_this_epoch(),
            ..self.clone()
        }
    }

    /// Acknowledges the end of this operation: it is forgotten, and not reported again.
    ///
    /// # Errors
    /// If this can't be saved: the end is reported again after a restart.
    pub async fn acknowledge(&self, instance: &str, operation: u64) -> Result<(), StoreError> {
        let store = Arc::clone(&self.watch.store);
        let owner = instance.to_owned();
        blocking(move || store.remove(&owner, operation)).await?;
        self.watch.watched.lock().remove(&(instance.to_owned(), operation));
        Ok(())
    }

    /// The operations without an acknowledged end, by instance and number.
    pub fn under_way(&self) -> Vec<(String, u64)> {
        self.watch.watched.lock().iter().cloned().collect()
    }
}
