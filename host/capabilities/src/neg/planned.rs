//! The NEGs of a plan: real reads fill a simulation, and the simulation takes every write.
//!
//! This type guarantees that a plan changes nothing: it gets [`Reads`], which cannot write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::simulated::{Neg, Operation, Simulated, Store};
use super::{Api, Endpoint, Error, NegRef, Reads, RequestId};
use async_trait::async_trait;

/// The world of a plan: NEGs as they are at the first read, and how they would develop.
pub struct Planned {
    real: Arc<dyn Reads>,
    simulated: Simulated,
    seen: Mutex<Seen>,
}

/// What was read from the real NEGs and is simulated from then on.
#[derive(Default)]
struct Seen {
    /// NEGs that were looked up, with their required subnet.
    ensured: BTreeMap<NegRef, String>,
    /// NEGs whose endpoints were listed, or that do not exist.
    listed: BTreeSet<NegRef>,
}

impl Planned {
    /// A plan that has read nothing yet, while these real operations are running, by number. The plan assumes that they
    /// succeed.
    pub fn new(real: Arc<dyn Reads>, under_way: &BTreeMap<u64, Operation>) -> Self {
        let store = Store {
            negs: BTreeMap::new(),
            operations: under_way.clone(),
            // New ones get higher numbers.
            last: under_way.keys().last().copied().unwrap_or_default(),
        };
        Self {
            real,
            simulated: Simulated(Mutex::new(store)),
            seen: Mutex::default(),
        }
    }

    /// Ends an operation successfully: it takes effect now. Returns false if no operation of that number is running.
    ///
    /// # Errors
    /// If its NEG was not read yet, and can't be.
    pub async fn end(&self, operation: u64) -> Result<bool, Error> {
        let of = |store: &Store| Some(store.operations.get(&operation)?.neg.clone());
        let running = of(&self.simulated.0.lock());
        let Some(neg) = running else { return Ok(false) };
        self.read(&neg).await?;
        Ok(self.simulated.end(operation, true))
    }

    /// Takes over the content of a NEG, once.
    async fn read(&self, neg: &NegRef) -> Result<(), Error> {
        if self.seen.lock().listed.contains(neg) {
            return Ok(());
        }
        match self.real.endpoints(neg).await {
            Ok(endpoints) => {
                // Known after the first lookup.
                let subnet = self.seen.lock().ensured.get(neg).cloned();
                self.simulated.put(Neg {
                    name: neg.name.clone(),
                    zone: neg.zone.clone(),
                    subnet: subnet.unwrap_or_default(),
                    endpoints: endpoints.into_iter().collect(),
                });
            }
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.seen.lock().listed.insert(neg.clone());
        Ok(())
    }
}

#[async_trait]
impl Api for Planned {
    async fn ensure(&self, neg: &NegRef, subnet: &str, request: RequestId) -> Result<bool, Error> {
        if !self.seen.lock().ensured.contains_key(neg) {
            let is_there = self.real.is_there(neg, subnet).await?;
            self.seen.lock().ensured.insert(neg.clone(), subnet.to_owned());
            if is_there {
                self.read(neg).await?;
                if let Some(read) = self.simulated.0.lock().negs.get_mut(neg) {
                    // It may have been read before its subnet was known.
                    subnet.clone_into(&mut read.subnet);
                }
            } else {
                // A NEG that does not exist has no endpoints to read.
                self.seen.lock().listed.insert(neg.clone());
            }
        }
        self.simulated.ensure(neg, subnet, request).await
    }

    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        self.read(neg).await?;
        self.simulated.list_endpoints(neg).await
    }

    async fn change(&self, attaches: bool, neg: &NegRef, endpoints: &[Endpoint], id: RequestId) -> Result<u64, Error> {
        self.read(neg).await?;
        self.simulated.change(attaches, neg, endpoints, id).await
    }
}

#[cfg(test)]
#[path = "planned_tests.rs"]
mod tests;
