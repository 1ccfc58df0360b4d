//! The NEGs of a plan: real reads fill a simulation, and the simulation takes every write.
//!
//! The guarantee that a plan changes nothing stands here: this type is given [`Reads`], which has no way to write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::simulated::{Neg, Operation, Simulated};
use super::{Api, Endpoint, Error, NegRef, Reads, RequestId};
use crate::Answer;

/// An operation that is under way in earnest while the plan is made. That it will end well is taken for granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnderWay {
    /// Whether it attaches; else it detaches.
    pub attaches: bool,
    /// On which NEG.
    pub neg: NegRef,
    /// Which endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// What a plan brings about: NEGs as they are when they are first asked for, and as they would become.
pub struct Planned {
    real: Arc<dyn Reads>,
    simulated: Simulated,
    seen: Mutex<Seen>,
}

/// What was read from the real NEGs already, and is from then on simulated.
#[derive(Default)]
struct Seen {
    /// Looked for, with the subnet that they must have.
    ensured: BTreeMap<NegRef, String>,
    /// Their endpoints were listed, or there was no such NEG.
    listed: BTreeSet<NegRef>,
}

impl Planned {
    /// A plan that has read nothing yet, while these operations are under way, by number.
    pub fn new(real: Arc<dyn Reads>, under_way: &BTreeMap<u64, UnderWay>) -> Self {
        let simulated = Simulated::default();
        for (number, operation) in under_way {
            let UnderWay {
                attaches,
                neg,
                endpoints,
            } = operation.clone();
            let operation = Operation {
                attaches,
                neg,
                endpoints,
            };
            simulated.resume(*number, operation);
        }
        Self {
            real,
            simulated,
            seen: Mutex::default(),
        }
    }

    /// Ends an operation well: it takes effect now. False where none of that number is under way.
    ///
    /// # Errors
    /// Where its NEG was not read yet, and can't be.
    pub async fn end(&self, operation: u64) -> Result<bool, Error> {
        if let Some(neg) = self.simulated.neg_of(operation) {
            self.read(&neg).await?;
        }
        Ok(self.simulated.end(operation, true))
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over what is in a NEG, once.
    async fn read(&self, neg: &NegRef) -> Result<(), Error> {
        if self.seen(|seen| seen.listed.contains(neg)) {
            return Ok(());
        }
        match self.real.endpoints(neg).await {
            Ok(endpoints) => self.simulated.put(Neg {
                name: neg.name.clone(),
                zone: neg.zone.clone(),
                // Known once somebody looks for it.
                subnet: self.seen(|seen| seen.ensured.get(neg).cloned()).unwrap_or_default(),
                endpoints,
            }),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.seen(|seen| seen.listed.insert(neg.clone()));
        Ok(())
    }

    /// Looks for a NEG, once, and takes over what is in it.
    async fn look_for(&self, neg: &NegRef, subnet: &str) -> Result<(), Error> {
        if self.seen(|seen| seen.ensured.contains_key(neg)) {
            return Ok(());
        }
        if self.real.is_there(neg, subnet).await? {
            self.seen(|seen| seen.ensured.insert(neg.clone(), subnet.to_owned()));
            self.read(neg).await?;
            self.simulated.set_subnet(neg, subnet);
        } else {
            self.seen(|seen| {
                seen.ensured.insert(neg.clone(), subnet.to_owned());
                // What is not there has no endpoints to read.
                seen.listed.insert(neg.clone());
            });
        }
        Ok(())
    }
}

impl Api for Planned {
    fn ensure<'a>(&'a self, neg: &'a NegRef, subnet: &'a str, request: RequestId) -> Answer<'a, Result<bool, Error>> {
        Box::pin(async move {
            self.look_for(neg, subnet).await?;
            self.simulated.ensure(neg, subnet, request).await
        })
    }

    fn list_endpoints<'a>(&'a self, neg: &'a NegRef) -> Answer<'a, Result<Vec<Endpoint>, Error>> {
        Box::pin(async move {
            self.read(neg).await?;
            self.simulated.listed(neg)
        })
    }

    fn attach<'a>(
        &'a self,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.read(neg).await?;
            self.simulated.attach(neg, endpoints, request).await
        })
    }

    fn detach<'a>(
        &'a self,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.read(neg).await?;
            self.simulated.detach(neg, endpoints, request).await
        })
    }
}

#[cfg(test)]
#[path = "planned_tests.rs"]
mod tests;
