//! What starts operations and reports their ends, as the loop sees it; and what each instance has started.
//!
//! An operation outlives the call that started it, and the process too. This module polls nothing: ends come in
//! through a channel, and the backend keeps them until the guest knows of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trueup_base::fence::Fence;
use trueup_capabilities::Answer;
use trueup_capabilities::neg::{Api, Endpoint, Error, NegRef, RequestId};

pub(crate) use trueup_capabilities::neg::compute::Ended;

/// Starts operations. Knows, over restarts too, those of whose end the guest does not know yet.
pub(crate) trait Operations: Send + Sync {
    /// The API for one instance.
    fn api(&self, instance: &str) -> Arc<dyn Api>;
    /// An instance has started an operation.
    fn started<'a>(&'a self, _instance: &'a str, _operation: u64) -> Answer<'a, ()> {
        Box::pin(std::future::ready(()))
    }
    /// Whether the end of this operation is still to come, or has come and the guest does not know of it yet.
    fn is_pending(&self, instance: &str, operation: u64) -> bool;
    /// The guest knows of the operation's end and has it in its state. The backend need not keep it.
    fn acknowledged<'a>(&'a self, instance: &'a str, operation: u64) -> Answer<'a, ()>;
}

/// The error for an operation that a guest's state has in flight but the backend does not know, in the backend's
/// words.
pub(crate) const NOT_FOUND: &str = "operation not found";

/// An operation that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Started {
    /// Whether it attaches. Otherwise it detaches.
    pub(crate) attaches: bool,
    /// The number of endpoints.
    pub(crate) endpoints: usize,
}

/// What an instance has started in this process and of whose end the guest does not know yet, by number.
pub(crate) type InFlight = Arc<Mutex<BTreeMap<u64, Started>>>;

/// Locks the operations in flight.
pub(crate) fn of(in_flight: &InFlight) -> MutexGuard<'_, BTreeMap<u64, Started>> {
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The API of one instance. It refuses requests once others may have acted, and notes the operations it starts.
pub(crate) struct Noted {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) operations: Arc<dyn Operations>,
    pub(crate) instance: String,
    /// The fence of the epoch of the decision.
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

    fn change<'a>(
        &'a self,
        attaches: bool,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.check()?;
            let operation = self.api.change(attaches, neg, endpoints, request).await?;
            let started = Started {
                attaches,
                endpoints: endpoints.len(),
            };
            of(&self.in_flight).insert(operation, started);
            self.operations.started(&self.instance, operation).await;
            Ok(operation)
        })
    }
}
