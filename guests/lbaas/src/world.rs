//! Everything that a call may ask, as one argument: the API, the clock, randomness, the log and metrics.
//!
//! `lib.rs` implements it with the component's imports, the tests with a simulation with a virtual clock.

use trueup_guest::{Clock, Telemetry};

use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::bindings::trueup::lbaas::types::{Object, ObjectRef, Spec, State};

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World: Clock + Telemetry {
    /// `api.load-balancer`
    ///
    /// # Errors
    /// The API's error.
    fn load_balancer(&mut self, identifier: &str) -> Result<State, ApiError>;
    /// `api.list-tagged`
    ///
    /// # Errors
    /// The API's error.
    fn list_tagged(&mut self, tag: &str) -> Result<Vec<Object>, ApiError>;
    /// `api.get`
    fn get(&mut self, refs: &[ObjectRef]) -> Vec<Result<Object, ApiError>>;
    /// `api.create`
    fn create(&mut self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, ApiError>>;
    /// `api.reset`
    fn reset(&mut self, refs: &[ObjectRef]) -> Vec<Result<(), ApiError>>;
    /// `api.destroy`
    fn destroy(&mut self, refs: &[ObjectRef]) -> Vec<Result<(), ApiError>>;

    /// `clock.sleep-ms`
    fn sleep_ms(&mut self, duration_ms: u64);
    /// `random.next-u64`
    fn next_u64(&mut self) -> u64;
}

/// True if the error concerns the whole call and not the one resource: the guest must ask nothing after it.
#[must_use]
pub fn ends_call(error: &ApiError) -> bool {
    match error {
        ApiError::RateLimited(_) | ApiError::Unauthorized | ApiError::AccessDenied(_) => true,
        ApiError::NotFound | ApiError::Refused(_) | ApiError::Unavailable(_) => false,
    }
}

/// The answers to a list of `asked` entries, one each. A host that gives fewer breaks the contract. The missing ones
/// then count as failed, so that no resource is forgotten.
pub fn complete<T>(answers: Vec<Result<T, ApiError>>, asked: usize) -> impl Iterator<Item = Result<T, ApiError>> {
    let missing = || {
        Err(ApiError::Unavailable(
            "the answer to the list lacks this entry".to_owned(),
        ))
    };
    answers.into_iter().chain(std::iter::repeat_with(missing)).take(asked)
}
