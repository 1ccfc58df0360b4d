//! `trueup:neg/api`: network endpoint groups of Google Compute Engine.
//!
//! An attachment or a detachment is started here, and ends later: its end is told to the guest by whoever runs the
//! instance, through `syncer.on-operation`. Knows nothing of targets or migrations; those are the guest's.
//!
//! ```text
//! guest -> binding (request id, tape, grant) -> Api: simulated, or Compute Engine
//! ```

mod binding;
pub mod compute;
mod order;
pub mod planned;
mod request;
pub mod simulated;

pub use crate::bindings::neg::api::{Error, NegRef};
pub use crate::bindings::neg::types::{Endpoint, EndpointGroup, Location};
pub(crate) use request::Began;
pub use request::RequestId;

use crate::Answer;

/// So many endpoints one operation may hold. Compute Engine takes no more in one request.
pub const ENDPOINTS_PER_OPERATION_MAX: usize = 500;

/// Network endpoint groups as one instance sees them, real or simulated. Methods are named as the WIT functions and
/// promise what those promise.
///
/// What changes something carries a [`RequestId`]: a backend that was asked the same with it already answers what it
/// answered then, and does nothing anew. That holds across crashes of this host.
pub trait Api: Send + Sync {
    /// Makes sure that the NEG exists with this subnet; true where it was created now.
    fn ensure<'a>(&'a self, neg: &'a NegRef, subnet: &'a str, request: RequestId) -> Answer<'a, Result<bool, Error>>;
    /// Every endpoint in the NEG, in the order of [`Endpoint`].
    fn list_endpoints<'a>(&'a self, neg: &'a NegRef) -> Answer<'a, Result<Vec<Endpoint>, Error>>;
    /// Starts an operation that attaches these, at most [`ENDPOINTS_PER_OPERATION_MAX`], and answers its number: never the
    /// same twice for one instance.
    fn attach<'a>(
        &'a self,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>>;
    /// [`Api::attach`] for an operation that detaches.
    fn detach<'a>(
        &'a self,
        neg: &'a NegRef,
        endpoints: &'a [Endpoint],
        request: RequestId,
    ) -> Answer<'a, Result<u64, Error>>;
}

/// The half of the API that changes nothing: what a plan is filled from.
pub trait Reads: Send + Sync {
    /// [`Api::ensure`] without making anything: true where the NEG is there with this subnet, false where there is none.
    /// Fails as `ensure` does where it is another one.
    fn is_there<'a>(&'a self, neg: &'a NegRef, subnet: &'a str) -> Answer<'a, Result<bool, Error>>;
    /// As [`Api::list_endpoints`].
    fn endpoints<'a>(&'a self, neg: &'a NegRef) -> Answer<'a, Result<Vec<Endpoint>, Error>>;
}
