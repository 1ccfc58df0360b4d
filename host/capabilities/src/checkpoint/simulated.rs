//! A store in memory that a scenario's faults can override.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;

use super::{Error, Saved, Store};
use crate::Answer;
use crate::faults::Faults;

/// Keeps its data as long as it lives; clones of the `Arc` around it share the storage.
#[derive(Debug, Default)]
pub struct Simulated {
    faults: Arc<Faults>,
    saved: Mutex<Option<Saved>>,
}

impl Simulated {
    /// A store that holds `saved`; `None` means that nothing was ever stored.
    pub fn new(faults: Arc<Faults>, saved: Option<Saved>) -> Self {
        Self {
            faults,
            saved: Mutex::new(saved),
        }
    }

    /// The currently stored data.
    pub fn saved(&self) -> Option<Saved> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Saved>> {
        // Each change is one assignment or one push, so a panic elsewhere leaves no partial change.
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, data: &str) {
        *self.lock() = Some(Saved::of(data));
    }

    fn add(&self, entry: &str) -> Result<(), Error> {
        match self.lock().as_mut() {
            Some(saved) => {
                saved.entries.push(entry.to_owned());
                Ok(())
            }
            None => Err(Error::Unavailable("nothing to append to".to_owned())),
        }
    }
}

impl Store for Simulated {
    fn checkpoint<'a>(&'a self, data: &'a str) -> Answer<'a, Result<(), Error>> {
        Box::pin(async move {
            let fault = self.faults.whole("store.checkpoint", &json!({ "data": data }));
            fault.unwrap_or_else(|| {
                self.replace(data);
                Ok(())
            })
        })
    }

    fn append<'a>(&'a self, entry: &'a str) -> Answer<'a, Result<(), Error>> {
        Box::pin(async move {
            let fault = self.faults.whole("store.append", &json!({ "entry": entry }));
            fault.unwrap_or_else(|| self.add(entry))
        })
    }

    fn restore(&self) -> Answer<'_, Result<Option<Saved>, Error>> {
        Box::pin(async move {
            let fault = self.faults.whole("store.restore", &json!({}));
            fault.unwrap_or_else(|| Ok(self.saved()))
        })
    }
}
