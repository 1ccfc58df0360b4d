//! Gets a guest: its bytes, and the program that they compile to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trueup_engine::{Digest, Engine};

use super::proof::{Refused, Step, refused};
use crate::config::GuestRef;
use crate::guests::Program;
use crate::registry::{Registry, Store};

/// A guest that was got.
pub(crate) struct Fetched {
    pub(crate) program: Arc<Program>,
    /// As they were given: what its digest is of. None: they are kept already.
    pub(crate) bytes: Option<Arc<[u8]>>,
}

/// Where guests are got from. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Guests {
    engine: Engine,
    registry: Registry,
    store: Store,
    /// Those of the store that were loaded, by digest.
    loaded: Arc<Mutex<BTreeMap<String, Arc<Program>>>>,
}

impl Guests {
    pub(crate) fn new(engine: Engine, registry: Registry, store: Store) -> Self {
        Self {
            engine,
            registry,
            store,
            loaded: Arc::default(),
        }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The guest that a reference names. Compiling takes its time, on a thread of its own.
    ///
    /// # Errors
    /// Why it can't be had.
    pub(crate) async fn named(&self, reference: &GuestRef) -> Result<Fetched, Refused> {
        let (this, reference) = (self.clone(), reference.clone());
        let fetched = tokio::task::spawn_blocking(move || this.fetch(&reference)).await;
        fetched.map_err(|error| refused(Step::Load)(error.into()))?
    }

    fn fetch(&self, reference: &GuestRef) -> Result<Fetched, Refused> {
        let bytes = self.registry.bytes(reference).map_err(|error| refused(Step::Load)(error.into()))?;
        let program = self.load(&bytes)?;
        Ok(Fetched {
            program,
            bytes: Some(bytes.into()),
        })
    }

    fn load(&self, bytes: &[u8]) -> Result<Arc<Program>, Refused> {
        let digest = Digest::of(bytes).to_string();
        if let Some(program) = self.loaded(&digest) {
            return Ok(program);
        }
        let guest = self.engine.load(bytes).map_err(|error| refused(Step::Load)(error.into()))?;
        let program = Program::new(&self.engine, guest).map_err(|why| Refused { step: Step::World, why })?;
        let program = Arc::new(program);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.insert(digest, Arc::clone(&program));
        Ok(program)
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

    /// A guest that was active once. Takes its time where it was not loaded yet.
    ///
    /// # Errors
    /// Why it can't be had.
    pub(crate) fn kept(&self, digest: &str) -> Result<Arc<Program>, Refused> {
        if let Some(program) = self.loaded(digest) {
            return Ok(program);
        }
        match self.store.get(digest).map_err(|error| refused(Step::Load)(error.into()))? {
            Some(bytes) => self.load(&bytes),
            None => Err(Refused {
                step: Step::Load,
                why: format!("the guest {digest} is kept no more"),
            }),
        }
    }
}
