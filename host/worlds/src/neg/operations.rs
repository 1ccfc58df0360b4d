//! What starts operations and reports their ends, as the loop sees it; and what each instance has started.
//!
//! An operation outlives the call that started it, and the process too. This module polls nothing: ends come in
//! through a channel, and the backend keeps them until the guest knows of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use trueup_base::fence::Fence;
use trueup_capabilities::async_trait;
use trueup_capabilities::neg::{Api, Endpoint, Error, NegRef, RequestId};

pub(crate) use trueup_capabilities::neg::compute::Ended;

/// Starts operations. Knows, over restarts too, those of whose end the guest does not know yet.
#[async_trait]
pub(crate) trait Operations: Send + Sync {
    /// The API for one instance.
    fn api(&self, instance: &str) -> Arc<dyn Api>;
    /// An instance has started an operation.
    async fn started(&self, _instance: &str, _operation: u64) {}
    /// Whether the end of this operation is still to come, or has come and the guest does not know of it yet.
    fn is_pending(&self, instance: &str, operation: u64) -> bool;
    /// The guest knows of the operation's end and has it in its state. The backend need not keep it.
    async fn acknowledged(&self, instance: &str, operation: u64);
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

#[async_trait]
impl Api for Noted {
    async fn ensure(&self, neg: &NegRef, subnet: &str, request: RequestId) -> Result<bool, Error> {
        self.check()?;
        self.api.ensure(neg, subnet, request).await
    }

    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        self.check()?;
        self.api.list_endpoints(neg).await
    }

    async fn change(
        &self,
        attaches: bool,
        neg: &NegRef,
        endpoints: &[Endpoint],
        request: RequestId,
    ) -> Result<u64, Error> {
        self.check()?;
        let operation = self.api.change(attaches, neg, endpoints, request).await?;
        let started = Started {
            attaches,
            endpoints: endpoints.len(),
        };
        self.in_flight.lock().insert(operation, started);
        self.operations.started(&self.instance, operation).await;
        Ok(operation)
    }
}
