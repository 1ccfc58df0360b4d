//! Who starts operations and says when they have ended, as the loop sees it; and what each instance has started.
//!
//! An operation outlives the call that started it, and the process too. Here nothing is polled: ends come in through a
//! channel, and stay with whoever brings them until the guest was told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trueup_capabilities::Answer;
use trueup_capabilities::fence::Fence;
use trueup_capabilities::neg::{Api, Endpoint, Error, NegRef, RequestId};

pub(crate) use trueup_capabilities::neg::compute::Ended;

/// What starts operations, and knows those whose end was not told, over restarts too.
pub(crate) trait Operations: Send + Sync {
    /// The API as one instance asks it.
    fn api(&self, instance: &str) -> Arc<dyn Api>;
    /// Whether an end of this operation is to come, or has come and was not told.
    fn is_pending(&self, instance: &str, operation: u64) -> bool;
    /// The guest was told of its end, and has that in its state: it need not be kept.
    fn told<'a>(&'a self, instance: &'a str, operation: u64) -> Answer<'a, ()>;
}

/// What is said of an operation that a guest's state has in flight and nobody knows, in the words of the backend.
pub(crate) const NOT_FOUND: &str = "operation not found";

/// An operation that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Started {
    /// Whether it attaches; else it detaches.
    pub(crate) attaches: bool,
    /// How many endpoints.
    pub(crate) endpoints: usize,
}

/// What an instance has started in this process, and was not told the end of: by number.
pub(crate) type InFlight = Arc<Mutex<BTreeMap<u64, Started>>>;

/// The same to be looked at.
pub(crate) fn of(in_flight: &InFlight) -> MutexGuard<'_, BTreeMap<u64, Started>> {
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An API of one instance, which is asked nothing once others may have acted, and whose operations are noted.
pub(crate) struct Noted {
    pub(crate) api: Arc<dyn Api>,
    /// Of the epoch in which it was decided.
    pub(crate) fence: Fence,
    pub(crate) in_flight: InFlight,
}

impl Noted {
    fn check(&self) -> Result<(), Error> {
        if self.fence.may_act() {
            return Ok(());
        }
        Err(Error::Unavailable(
            "nothing is asked: this host does not act now, or what was decided is of an earlier term".to_owned(),
        ))
    }

    fn note(&self, attaches: bool, endpoints: &[Endpoint], started: Result<u64, Error>) -> Result<u64, Error> {
        let operation = started?;
        let note = Started {
            attaches,
            endpoints: endpoints.len(),
        };
        of(&self.in_flight).insert(operation, note);
        Ok(operation)
    }
}

impl Api for Noted {
    fn ensure<'a>(&'a self, neg: &'a NegRef, subnet: &'a str, request: RequestId) -> Answer<'a, Result<bool, Error>> {
        Box::pin(async move {
            self.check()?;
            self.api.ensure(neg, subnet, request).await
        })
    }

    fn list_endpoints<'a>(&'a self, neg: &'a NegRef) -> Answer<'a, Result<Vec<Endpoint>, Error>> {
        Box::pin(async move {
            self.check()?;
            self.api.list_endpoints(neg).await
        })
    }

    fn attach<'a>(
        &'a self,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.check()?;
            let started = self.api.attach(neg, endpoints, request).await;
            self.note(true, endpoints, started)
        })
    }

    fn detach<'a>(
        &'a self,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.check()?;
            let started = self.api.detach(neg, endpoints, request).await;
            self.note(false, endpoints, started)
        })
    }
}
