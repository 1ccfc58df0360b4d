//! What one simulated server decides itself.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::faults::Faults;
use super::pipeline::Pipeline;
use super::refusal::Refusal;
use super::server::Problem;

/// A request that was admitted, with its body.
pub(crate) struct Request<'a, S: Service> {
    pub(crate) parts: &'a Parts,
    pub(crate) body: &'a [u8],
    /// `None` if the API has no such path.
    pub(crate) target: Option<&'a S::Target>,
    pub(crate) in_flight: &'a S::InFlight,
}

/// One simulated API: its state, its settings and its answers.
///
/// The [`Pipeline`] holds it under a lock that it never holds while it awaits something.
pub(crate) trait Service: Sized + Send + 'static {
    /// How messages name the server.
    const NAME: &'static str;
    /// The longest body of a request to the API.
    const BODY_BYTES_MAX: usize;

    type Config: Send;
    /// What a path of the API names.
    type Target: Send + Sync;
    /// What the server remembers of an admitted request until its answer is ready.
    type InFlight: Send + Sync;
    /// The whole state, as `/state` shows and takes it.
    type State: Serialize + DeserializeOwned + Send;

    /// Checks the configuration and starts with the state from the state file.
    fn open(config: Self::Config) -> Result<Self, Problem>;

    /// The paths that this server has for tests, beside those of all servers.
    fn admin_routes() -> Router<Arc<Pipeline<Self>>> {
        Router::new()
    }

    /// Reads the path. `None` if the API has no such path.
    fn target(parts: &Parts) -> Option<Self::Target>;

    /// The name under which the request is counted. There must be few: clients can make up methods and paths.
    fn label(method: &Method, target: Option<&Self::Target>) -> String;

    fn rate_limit_per_second(&self) -> Option<NonZeroU32>;

    fn latency_ms(&self) -> u64;

    /// Whether the refusal of what the rate limit does not admit has a `Retry-After`.
    fn retry_after(&self) -> bool;

    /// An error in the API's form. `reason` is that of a fault; other APIs have none.
    fn refusal(status: StatusCode, reason: Option<&str>, message: &str) -> Refusal;

    /// Checks the value of the header `Authorization`.
    fn check_token(&self, authorization: Option<&[u8]>) -> Result<(), Refusal>;

    fn faults(&mut self) -> &mut Faults;

    /// Lets everything due at `now_ms` take effect.
    fn settle(&mut self, now_ms: u64) -> Result<(), Refusal>;

    /// The whole state. What is due has taken effect.
    fn state(&self) -> Self::State;

    /// Replaces the whole state.
    fn replace(&mut self, state: Self::State) -> Result<(), Refusal>;

    /// Notes an admitted request, before the delay of a fault.
    fn begin(pipeline: &Arc<Pipeline<Self>>, method: &Method, target: Option<&Self::Target>) -> Self::InFlight;

    /// Carries the request out.
    fn answer(
        pipeline: &Pipeline<Self>,
        request: Request<'_, Self>,
    ) -> impl Future<Output = Result<Response, Refusal>> + Send;
}
