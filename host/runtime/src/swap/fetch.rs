//! Gets a guest: its bytes, and the program that they compile to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trueup_engine::Engine;

use super::proof::{Refused, Step, refused};
use super::revisions::HOST;
use crate::config::{GuestRef, Verify};
use crate::guests::Program;
use crate::registry::{NoGuest, NotLoaded, Reference, Registry, Store, Vouched};

/// A guest that was got.
pub(crate) struct Fetched {
    pub(crate) program: Arc<Program>,
    /// As they were given: what its digest is of. None: they are kept already.
    pub(crate) bytes: Option<Arc<[u8]>>,
    /// As a revision has it.
    pub(crate) vouched: Option<String>,
}

/// So many compiled guests are held for those that are wanted again; one in Python has 35 MB.
const LOADED_MAX: usize = 16;

/// Where guests are got from. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Guests {
    engine: Engine,
    registry: Registry,
    store: Store,
    /// Those of the store that were loaded, by digest.
    loaded: Arc<Mutex<BTreeMap<String, Arc<Program>>>>,
    /// Held while one of the store is loaded.
    loading: Arc<Mutex<()>>,
}

impl Guests {
    pub(crate) fn new(engine: Engine, registry: Registry, store: Store) -> Self {
        Self {
            engine,
            registry,
            store,
            loaded: Arc::default(),
            loading: Arc::default(),
        }
    }

    /// # Errors
    /// Where the lock file beside the configuration can't be read.
    pub(crate) fn check_lock(&self) -> Result<(), NoGuest> {
        self.registry.check_lock()
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The guest that a reference names, as the configuration means it: pinned by its lock, signed where that is asked for.
    ///
    /// # Errors
    /// Why it can't be had.
    pub(crate) async fn named(&self, reference: &GuestRef, verify: &Verify) -> Result<Fetched, Refused> {
        let loaded = self.load(reference, verify).await;
        loaded.map_err(|error| refused(Step::Load)(error.into()))
    }

    /// The same, where it counts whether it can't be had or did not come just now.
    ///
    /// # Errors
    /// Why it can't be had.
    pub(crate) async fn load(&self, reference: &GuestRef, verify: &Verify) -> Result<Fetched, NotLoaded> {
        let (this, reference, verify) = (self.clone(), Reference::from(reference), verify.clone());
        // Compiling takes its time, and so it has a thread of its own.
        let loading = tokio::runtime::Handle::current();
        let loaded = tokio::task::spawn_blocking(move || {
            loading.block_on(this.registry.load(&this.engine, &reference, &verify))
        });
        let loaded = loaded.await.map_err(|error| NotLoaded::Failed(error.to_string()))??;
        self.remember(&loaded.program);
        Ok(Fetched {
            program: loaded.program,
            bytes: Some(loaded.bytes.into()),
            vouched: match loaded.vouched {
                Vouched::Host => Some(HOST.to_owned()),
                Vouched::Key(key) => Some(key.display().to_string()),
                Vouched::NotAsked => None,
            },
        })
    }

    fn remember(&self, program: &Arc<Program>) {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.len() >= LOADED_MAX {
            // What is active is held elsewhere, the rest is loaded again from the compile cache.
            loaded.clear();
        }
        loaded.insert(program.guest.digest.to_string(), Arc::clone(program));
    }

    fn loaded(&self, digest: &str) -> Option<Arc<Program>> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.get(digest).map(Arc::clone)
    }

    /// Keeps a guest's bytes, so that a restart and a rollback find them whatever becomes of where they came from.
    ///
    /// # Errors
    /// Where they can't be written.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Result<(), Refused> {
        let kept = self.store.put(bytes);
        kept.map(drop).map_err(|error| refused(Step::Commit)(error.into()))
    }

    /// A guest that was active once; none: it is kept no more. Takes its time where it was not loaded yet.
    ///
    /// # Errors
    /// Why it can't be had now.
    pub(crate) fn kept(&self, digest: &str) -> Result<Option<Arc<Program>>, Refused> {
        if let Some(program) = self.loaded(digest) {
            return Ok(Some(program));
        }
        // Many instances may ask for the same one at once, after a start: it is compiled once.
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = self.loaded(digest) {
            return Ok(Some(program));
        }
        let stored = self.registry.stored(&self.engine, digest);
        let stored = stored.map_err(|error| refused(Step::Load)(error.into()))?;
        if let Some(program) = &stored {
            self.remember(program);
        }
        Ok(stored)
    }
}
