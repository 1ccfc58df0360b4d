//! Everything that a call may ask, as one argument: the API, the clock, randomness, the log and metrics.

use trueup_guest::bindings::trueup::host::clock;
use trueup_guest::{Clock, Telemetry};

use crate::bindings::trueup::host::random;
use crate::bindings::trueup::lbaas::api::{self, Error as ApiError};
use crate::bindings::trueup::lbaas::types::{Object, ObjectRef, Spec, State};

trueup_guest::world! {
    /// The guest's imports.
    pub trait World: Clock + Telemetry {
        fn load_balancer(identifier: &str) -> Result<State, ApiError> = api::load_balancer;
        fn list_tagged(tag: &str) -> Result<Vec<Object>, ApiError> = api::list_tagged;
        fn get(refs: &[ObjectRef]) -> Vec<Result<Object, ApiError>> = api::get;
        fn create(specs: &[Spec], tags: &[String]) -> Vec<Result<Object, ApiError>> = api::create;
        fn reset(refs: &[ObjectRef]) -> Vec<Result<(), ApiError>> = api::reset;
        fn destroy(refs: &[ObjectRef]) -> Vec<Result<(), ApiError>> = api::destroy;
        fn sleep_ms(duration_ms: u64) = clock::sleep_ms;
        fn next_u64() -> u64 = random::next_u64;
    }
}

/// The answers to a list of `asked` entries, one each, and the first error of them that ends the whole call. A host
/// that gives fewer breaks the contract. The missing ones then count as failed, so that no resource is forgotten.
pub fn complete<T>(
    mut answers: Vec<Result<T, ApiError>>,
    asked: usize,
) -> (impl Iterator<Item = Result<T, ApiError>>, Option<ApiError>) {
    answers.truncate(asked);
    let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
    // Such an error concerns the whole call and not the one resource: the guest must ask nothing after it.
    let ends_call = |error: &&ApiError| match error {
        ApiError::RateLimited(_) | ApiError::Unauthorized | ApiError::AccessDenied(_) => true,
        ApiError::NotFound | ApiError::Refused(_) | ApiError::Unavailable(_) => false,
    };
    let end = errors.find(ends_call).cloned();
    let text = "the answer to the list lacks this entry";
    let missing = || Err(ApiError::Unavailable(text.to_owned()));
    let answers = answers.into_iter().chain(std::iter::repeat_with(missing)).take(asked);
    (answers, end)
}
