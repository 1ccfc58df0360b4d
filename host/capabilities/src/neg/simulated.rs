//! NEGs in memory, for guests in scenarios and tests.
//!
//! An operation starts here, and the owner of this value ends it; until then it changes nothing. Knows no HTTP and no
//! operations that end by themselves: the simulated server handles those.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{Api, Endpoint, Error, NegRef, Reads, RequestId};
use async_trait::async_trait;

/// The HTTP status of a conflict with the current state.
const CONFLICT: u16 = 409;

/// One NEG, as in scenarios and dumps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neg {
    /// Unique in its zone.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// The subnet of its endpoints.
    pub subnet: String,
    /// Its endpoints.
    pub endpoints: BTreeSet<Endpoint>,
}

impl Neg {
    /// Its name and zone.
    pub fn key(&self) -> NegRef {
        NegRef {
            name: self.name.clone(),
            zone: self.zone.clone(),
        }
    }
}

/// NEGs in memory.
///
/// Ignores request ids: a scenario's clock does not run, so two calls may begin at the same time.
#[derive(Debug, Default)]
pub struct Simulated(pub(super) Mutex<Store>);

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) negs: BTreeMap<NegRef, Neg>,
    /// The running operations, by number.
    pub(super) operations: BTreeMap<u64, Operation>,
    /// The number of the newest one.
    pub(super) last: u64,
}

/// An operation that has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Whether it attaches; otherwise it detaches.
    pub attaches: bool,
    /// The NEG.
    pub neg: NegRef,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

impl Simulated {
    /// Adds a NEG as it is, or replaces the one with that name and zone.
    pub fn put(&self, neg: Neg) {
        self.0.lock().negs.insert(neg.key(), neg);
    }

    /// The current NEGs, by name, then zone.
    pub fn negs(&self) -> Vec<Neg> {
        self.0.lock().negs.values().cloned().collect()
    }

    /// Ends an operation; if it succeeded, it takes effect now. Returns false if no operation of that number is
    /// running.
    pub fn end(&self, operation: u64, succeeded: bool) -> bool {
        let mut store = self.0.lock();
        let Some(ended) = store.operations.remove(&operation) else {
            return false;
        };
        if let (true, Some(stored)) = (succeeded, store.negs.get_mut(&ended.neg)) {
            if ended.attaches {
                stored.endpoints.extend(ended.endpoints);
            } else {
                for endpoint in &ended.endpoints {
                    stored.endpoints.remove(endpoint);
                }
            }
        }
        true
    }

    /// Whether such a NEG exists with this subnet.
    fn has(&self, neg: &NegRef, subnet: &str) -> Result<bool, Error> {
        match self.0.lock().negs.get(neg) {
            Some(stored) if stored.subnet == subnet => Ok(true),
            Some(_) => Err(Error::Refused((CONFLICT, "subnet differs".to_owned()))),
            None => Ok(false),
        }
    }
}

#[async_trait]
impl Api for Simulated {
    async fn ensure(&self, neg: &NegRef, subnet: &str, _: RequestId) -> Result<bool, Error> {
        if self.has(neg, subnet)? {
            return Ok(false);
        }
        self.put(Neg {
            name: neg.name.clone(),
            zone: neg.zone.clone(),
            subnet: subnet.to_owned(),
            endpoints: BTreeSet::new(),
        });
        Ok(true)
    }

    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        let store = self.0.lock();
        let stored = store.negs.get(neg).ok_or(Error::NotFound)?;
        Ok(stored.endpoints.iter().cloned().collect())
    }

    async fn change(&self, attaches: bool, neg: &NegRef, endpoints: &[Endpoint], _: RequestId) -> Result<u64, Error> {
        let mut store = self.0.lock();
        if !store.negs.contains_key(neg) {
            return Err(Error::NotFound);
        }
        store.last += 1;
        let number = store.last;
        let operation = Operation {
            attaches,
            neg: neg.clone(),
            endpoints: endpoints.to_vec(),
        };
        store.operations.insert(number, operation);
        Ok(number)
    }
}

#[async_trait]
impl Reads for Simulated {
    async fn is_there(&self, neg: &NegRef, subnet: &str) -> Result<bool, Error> {
        self.has(neg, subnet)
    }

    async fn endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        self.list_endpoints(neg).await
    }
}

#[cfg(test)]
#[path = "simulated_tests.rs"]
mod tests;
