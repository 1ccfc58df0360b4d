//! The real backend of `trueup:neg/api`: Compute Engine over its REST API, version 1.
//!
//! Decides nothing about what should be there; that is the guest's. Checks no grant and keeps no journal; that is the
//! binding's. From the contract inwards:
//!
//! ```text
//! mod, instance (the four functions) -> request (one request: pace, tries, token) -> http::client -> Compute Engine
//!                                       wire, path: what its JSON and paths mean
//! watch (operations to their end)    -> request;  operations: those under way, on disk
//! ```
//!
//! What guests ask is held back where several hosts run and this one may not act any more, as in `lbaas/anexia`; looks at
//! operations and tokens change nothing and go on.

mod credentials;
mod instance;
mod operations;
mod pace;
mod path;
mod request;
mod service_account;
mod settings;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

pub use self::credentials::{CREDENTIALS_ENV, Credentials, CredentialsError};
use self::instance::Instance;
pub use self::operations::{End, OperationStore, OperationsFile, OperationsInMemory, Started, StoreError};
use self::path::Paths;
use self::request::Requests;
pub use self::settings::{ENDPOINT_DEFAULT, EndpointType, Settings, SettingsError};
pub use self::watch::Ended;
use self::watch::{Tasks, Watch, lock};
use super::{Api, NegRef, Reads};
use crate::fence::Fence;

/// So many ends wait to be taken in; further operations are looked at until there is room.
const ENDS_WAITING_MAX: usize = 1_024;

/// Why the backend can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting that can't be.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The operations that an earlier run has started can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Compute Engine. One for the whole host: its requests share one pace. All clones are the same one; the looks at
/// operations end when the last is dropped.
#[derive(Clone)]
pub struct Compute {
    shared: Arc<Shared>,
    tasks: Tasks,
    fence: Fence,
}

struct Shared {
    watch: Arc<Watch>,
    /// Changes of one NEG are sent one after another, in the order in which they were asked for.
    in_order: Mutex<BTreeMap<NegRef, Arc<tokio::sync::Mutex<()>>>>,
}

impl Compute {
    /// Checks the settings, and goes on looking at the operations that are in the store. What guests ask is not sent when
    /// `fence` lets nothing through. Ends of operations, those in the store too, come out of the channel, each until
    /// [`Compute::told`] says that it was taken in, and after a restart again.
    ///
    /// Must be called within a tokio runtime. Blocks while the store is read.
    ///
    /// # Errors
    /// One line: the setting that can't be, or why the store can't be read.
    pub fn new(
        settings: Settings,
        credentials: Credentials,
        store: Arc<dyn OperationStore>,
        fence: Fence,
    ) -> Result<(Self, mpsc::Receiver<Ended>), StartError> {
        let requests = Requests::new(&settings, credentials)?;
        let stored = store.all()?;
        let (ends, ended) = mpsc::channel(ENDS_WAITING_MAX);
        let watch = Arc::new(Watch {
            requests,
            paths: Paths {
                project: settings.project.clone(),
            },
            settings,
            store,
            ends,
            watched: Mutex::default(),
        });
        let tasks = Tasks::default();
        watch.resume(stored, &tasks);
        let shared = Shared {
            watch,
            in_order: Mutex::default(),
        };
        let compute = Self {
            shared: Arc::new(shared),
            tasks,
            fence,
        };
        Ok((compute, ended))
    }

    /// The NEGs as one instance sees them: the operations that it starts are its own.
    pub fn of(&self, instance: &str) -> Arc<dyn Api> {
        Arc::new(Instance {
            compute: self.clone(),
            name: instance.to_owned(),
        })
    }

    /// The NEGs for whoever only looks.
    pub fn reads(&self) -> Arc<dyn Reads> {
        Arc::new(Instance {
            compute: self.clone(),
            name: String::new(),
        })
    }

    /// The same for what is decided from here on, such as one job: once others may have acted it sends nothing more, also
    /// where this host acts again.
    pub fn of_this_epoch(&self) -> Self {
        Self {
            fence: self.fence.of_this_epoch(),
            ..self.clone()
        }
    }

    /// The end of this operation was taken in: it is forgotten, and not told again.
    ///
    /// # Errors
    /// Where that can't be kept: it is told again after a restart.
    pub async fn told(&self, instance: &str, operation: u64) -> Result<(), StoreError> {
        self.shared.watch.told(instance, operation).await
    }

    /// The operations whose end was not taken in yet, by instance and number.
    pub fn under_way(&self) -> Vec<(String, u64)> {
        lock(&self.shared.watch.watched).iter().cloned().collect()
    }

    /// What keeps changes of one NEG in order: whoever waits first is let in first.
    fn order_of(&self, neg: &NegRef) -> Arc<tokio::sync::Mutex<()>> {
        let mut in_order = lock(&self.shared.in_order);
        // Those that nobody holds or waits for say nothing.
        in_order.retain(|_, order| Arc::strong_count(order) > 1);
        Arc::clone(in_order.entry(neg.clone()).or_default())
    }
}
