//! What one simulated server decides itself.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::faults::{FaultFields, Faults};
use super::pipeline::Pipeline;
use super::refusal::Refuse;
use super::server::Problem;
use super::traffic::OwnCounters;

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
    type Counters: OwnCounters;
    /// What a path of the API names.
    type Target: Send + Sync;
    /// What the server remembers of an admitted request until its answer is ready.
    type InFlight: Send + Sync;
    /// The whole state, as `/state` shows and takes it.
    type State: Serialize + DeserializeOwned + Send;
    type Refusal: Refuse;

    /// Checks the configuration and starts with the state from the state file.
    fn open(config: Self::Config) -> Result<Self, Problem>;

    /// Writes the log line of one request. A target of `tracing` is a constant, so each server has its own call.
    fn log(method: &Method, path: &str, status: &str, ms: u64);

    /// The paths that this server has for tests, beside those of all servers.
    fn admin_routes() -> Router<Arc<Pipeline<Self>>> {
        Router::new()
    }

    /// Reads the path. An error refuses the request uncounted and without a token.
    fn target(parts: &Parts) -> Result<Option<Self::Target>, Self::Refusal>;

    /// The name under which the request is counted. There must be few: clients can make up methods and paths.
    fn label(method: &Method, target: Option<&Self::Target>) -> String;

    fn rate_limit_per_second(&self) -> Option<NonZeroU32>;

    fn latency_ms(&self) -> u64;

    /// Refuses what the rate limit does not admit for another `wait_ns`.
    fn rate_limited(&self, wait_ns: u64) -> Self::Refusal;

    /// Checks the value of the header `Authorization`.
    fn check_token(&self, authorization: Option<&[u8]>) -> Result<(), Self::Refusal>;

    /// The error that a fault demands.
    fn faulty(&self, status: StatusCode, fault: &FaultFields) -> Self::Refusal;

    fn faults(&mut self) -> &mut Faults;

    /// Lets everything due at `now_ms` take effect.
    fn settle(&mut self, now_ms: u64) -> Result<(), Self::Refusal>;

    /// The whole state. What is due has taken effect.
    fn state(&self) -> Self::State;

    /// Replaces the whole state.
    fn replace(&mut self, state: Self::State) -> Result<(), Self::Refusal>;

    /// Notes an admitted request, before the delay of a fault.
    fn begin(pipeline: &Arc<Pipeline<Self>>, method: &Method, target: Option<&Self::Target>) -> Self::InFlight;

    /// Carries the request out.
    fn answer(
        pipeline: &Pipeline<Self>,
        request: Request<'_, Self>,
    ) -> impl Future<Output = Result<Response, Self::Refusal>> + Send;
}
