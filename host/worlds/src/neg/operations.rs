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

/// The NEG of a sync that the backend did not know, of which a guest speaks that reports its first error: the first
/// one that was to be changed, or else the last one that was read, with which a sync ends if that is an error. Also
/// whether it was to be changed.
pub(crate) type Unknown = Mutex<Option<(NegRef, bool)>>;

/// The API of one instance. It refuses requests once others may have acted, and notes the operations it starts and the
/// NEGs that the backend does not know.
pub(crate) struct Noted {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) operations: Arc<dyn Operations>,
    pub(crate) instance: String,
    /// The fence of the epoch of the decision.
    pub(crate) fence: Fence,
    pub(crate) in_flight: InFlight,
    pub(crate) unknown: Unknown,
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

/// The answer to a question about `neg`, which is noted if the backend does not know it.
fn noted<T>(unknown: &Unknown, neg: &NegRef, was_to_change: bool, answer: Result<T, Error>) -> Result<T, Error> {
    if let Err(Error::NotFound) = &answer {
        let mut unknown = unknown.lock();
        if !matches!(&*unknown, Some((_, true))) {
            *unknown = Some((neg.clone(), was_to_change));
        }
    }
    answer
}

#[async_trait]
impl Api for Noted {
    async fn ensure(&self, neg: &NegRef, subnet: &str, request: RequestId) -> Result<bool, Error> {
        self.check()?;
        noted(&self.unknown, neg, true, self.api.ensure(neg, subnet, request).await)
    }

    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        self.check()?;
        noted(&self.unknown, neg, false, self.api.list_endpoints(neg).await)
    }

    async fn change(
        &self,
        attaches: bool,
        neg: &NegRef,
        endpoints: &[Endpoint],
        request: RequestId,
    ) -> Result<u64, Error> {
        self.check()?;
        let answer = self.api.change(attaches, neg, endpoints, request).await;
        let operation = noted(&self.unknown, neg, true, answer)?;
        let started = Started {
            attaches,
            endpoints: endpoints.len(),
        };
        self.in_flight.lock().insert(operation, started);
        self.operations.started(&self.instance, operation).await;
        Ok(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neg::guest;
    use crate::neg::turn::describe;

    #[test]
    fn an_unknown_neg_is_named_with_its_zone() {
        let neg = |zone: &str| NegRef {
            name: "web".to_owned(),
            zone: zone.to_owned(),
        };
        let unknown = Unknown::default();
        let says = || {
            let unknown = unknown.lock();
            describe(
                &guest::Error::Api(Error::NotFound),
                unknown.as_ref().map(|(neg, _)| neg),
            )
        };
        let not_found = |zone: &str, was_to_change: bool| {
            noted(&unknown, &neg(zone), was_to_change, Err::<(), _>(Error::NotFound)).unwrap_err();
        };
        noted(&unknown, &neg("a"), true, Ok(())).unwrap();
        assert_eq!(says(), "Compute Engine does not know the NEG, or not any more");
        for zone in ["b", "c"] {
            not_found(zone, false);
            let text = format!("Compute Engine does not know NEG `web` in zone `{zone}`, or not any more");
            assert_eq!(says(), text, "the last one that was read ended the sync");
        }
        for (zone, was_to_change) in [("d", true), ("e", true), ("f", false)] {
            not_found(zone, was_to_change);
            assert!(says().contains("zone `d`"), "the guest reports its first error");
        }
    }
}
