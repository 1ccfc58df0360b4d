//! `trueup:neg/api`: network endpoint groups of Google Compute Engine.
//!
//! An attachment or a detachment starts here and ends later. The runner of the instance reports its end to the guest
//! through `syncer.on-operation`. Knows nothing of targets or migrations; the guest handles those.
//!
//! ```text
//! guest -> binding (request id, tape, grant) -> Api: simulated, or Compute Engine
//! ```

mod binding;
pub mod compute;
mod order;
pub mod planned;
pub(crate) mod reading;
mod request;
pub mod shown;
pub mod simulated;

pub use crate::bindings::neg::api::{Error, NegRef};
pub use crate::bindings::neg::types::{Endpoint, EndpointGroup, Location};
pub(crate) use request::Began;
pub use request::RequestId;

use async_trait::async_trait;

/// The maximum number of endpoints in one operation: Compute Engine's limit for one request.
pub const ENDPOINTS_PER_OPERATION_MAX: usize = 500;

/// Network endpoint groups for one instance, real or simulated. Methods have the names and promises of the WIT
/// functions.
///
/// A change carries a [`RequestId`]. If a backend gets the same request with the same id again, it returns its earlier
/// answer and does nothing. That holds across crashes of this host.
#[async_trait]
pub trait Api: Send + Sync {
    /// Ensures that the NEG exists with this subnet. Returns true if it was created now.
    async fn ensure(&self, neg: &NegRef, subnet: &str, request: RequestId) -> Result<bool, Error>;
    /// Every endpoint in the NEG, in the order of [`Endpoint`].
    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error>;
    /// Starts an operation that attaches these endpoints, or else detaches them, at most
    /// [`ENDPOINTS_PER_OPERATION_MAX`]. Returns its number, which is unique within an instance.
    async fn change(
        &self,
        attaches: bool,
        neg: &NegRef,
        endpoints: &[Endpoint],
        request: RequestId,
    ) -> Result<u64, Error>;
}

/// The half of the API that changes nothing; it fills a plan.
#[async_trait]
pub trait Reads: Send + Sync {
    /// [`Api::ensure`] without creating anything: returns true if the NEG exists with this subnet, false if there is
    /// none. Fails as `ensure` does if it differs.
    async fn is_there(&self, neg: &NegRef, subnet: &str) -> Result<bool, Error>;
    /// As [`Api::list_endpoints`].
    async fn endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error>;
}
