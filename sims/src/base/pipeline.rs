//! What a request passes on its way to the API and back, and what one server decides itself of that ([`Service`]).
//!
//! ```text
//! log line -> counted -> body -> rate limit -> token -> fault before -> effect -> fault after -> latency
//! ```
//!
//! A request whose client disconnects is dropped wherever it waits: before the effect without a trace, after the effect
//! without an answer.

use std::collections::BTreeMap;
use std::future::ready;
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{self, Body};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::window::Window;

use super::faults::{FaultFields, Faults, When};
use super::refusal::Refusal;
use super::{LOG_TARGET, admin, state_file};
use crate::StartError;

const SECOND_MS: u64 = 1_000;

/// Milliseconds since 1970. They advance evenly, even if the machine's clock is set meanwhile.
pub(crate) fn now_ms() -> u64 {
    SystemClock.steady_ms()
}

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

    /// Checks the configuration, and starts with the state from the state file.
    fn open(config: Self::Config) -> Result<Self, StartError>;

    /// The paths that this server has for tests, beside those of all servers.
    fn admin_routes() -> Router<Arc<Pipeline<Self>>> {
        Router::new()
    }

    /// Reads the path. `None` if the API has no such path.
    fn target(parts: &Parts) -> Option<Self::Target>;

    /// The name under which the request is counted. There must be few: clients can make up methods and paths.
    fn label(method: &Method, target: Option<&Self::Target>) -> String;

    /// An error in the API's form. `reason` is that of a fault; other APIs have none.
    fn refusal(status: StatusCode, reason: Option<&str>, message: &str) -> Refusal;

    /// Checks the value of the header `Authorization`.
    fn check_token(&self, authorization: Option<&[u8]>) -> Result<(), Refusal>;

    fn common(&mut self) -> &mut Common;

    /// Lets everything due at `now_ms` take effect.
    fn settle(&mut self, now_ms: u64) -> Result<(), Refusal>;

    /// The whole state. What is due has taken effect.
    fn state(&self) -> Self::State;

    /// Replaces the whole state.
    fn replace(&mut self, state: Self::State) -> Result<(), Refusal>;

    /// Notes an admitted request, before the delay of a fault.
    fn begin(&mut self, method: &Method, target: Option<&Self::Target>) -> Self::InFlight;

    /// Carries the request out.
    fn answer(
        pipeline: &Pipeline<Self>,
        request: Request<'_, Self>,
    ) -> impl Future<Output = Result<Response, Refusal>> + Send;

    /// Writes the state to the state file. An effect that can't be kept is not acknowledged: the client gets an error,
    /// although the server has the effect until it ends.
    fn save(&mut self) -> Result<(), Refusal> {
        let Some(path) = self.common().state_file.clone() else {
            return Ok(());
        };
        state_file::save(&path, self.state()).map_err(|error| {
            tracing::error!(target: LOG_TARGET, error = &error as &dyn std::error::Error, "the state was not kept");
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Self::refusal(status, Some("internalError"), &error.to_string())
        })
    }
}

/// What every server is configured with, and the faults that are left.
pub(crate) struct Common {
    pub(crate) latency_ms: u64,
    pub(crate) rate_limit_per_second: Option<NonZeroU32>,
    /// Whether the refusal of what the rate limit does not admit has a `Retry-After`.
    pub(crate) retry_after: bool,
    /// `None` if the state is not kept.
    pub(crate) state_file: Option<PathBuf>,
    pub(crate) faults: Faults,
}

/// Counted since the start, or since the counters were last cleared.
#[derive(Default, Serialize)]
pub(crate) struct Counters {
    /// By what was asked, identifiers left out: `GET /api/LBaaS/v1/bind.json/{id}`, `networkEndpointGroups.get`.
    pub(super) requests: BTreeMap<String, u64>,
    pub(super) requests_in_flight: u64,
    pub(super) requests_in_flight_max: u64,
}

/// The counters, and the requests that the rate limit has admitted, in milliseconds.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(super) counters: Counters,
    admitted: Window,
}

/// What all requests to one server share.
pub(crate) struct Pipeline<S: Service> {
    service: Mutex<S>,
    traffic: Mutex<Traffic>,
    /// Closed when the server stops; nothing is ever sent.
    stopping: watch::Receiver<()>,
}

impl<S: Service> Pipeline<S> {
    pub(crate) fn router(service: S, stopping: watch::Receiver<()>) -> Router {
        let pipeline = Arc::new(Self {
            service: Mutex::new(service),
            traffic: Mutex::default(),
            stopping,
        });
        admin::routes()
            .fallback(serve::<S>)
            .layer(middleware::from_fn_with_state(Arc::clone(&pipeline), log::<S>))
            .with_state(pipeline)
    }

    /// Never held across an await. The state file is written under it, which takes microseconds.
    pub(crate) fn service(&self) -> MutexGuard<'_, S> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The service once everything due has taken effect.
    pub(crate) fn settled(&self) -> Result<MutexGuard<'_, S>, Refusal> {
        let mut service = self.service();
        service.settle(now_ms())?;
        Ok(service)
    }

    /// Never held across an await.
    pub(crate) fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, parts: &Parts) -> Result<(), Refusal> {
        let (limit, retry_after) = {
            let mut service = self.service();
            (service.common().rate_limit_per_second, service.common().retry_after)
        };
        if let Some(limit) = limit {
            let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
            let admitted = self.traffic().admitted.admit(limit, SECOND_MS, now_ms());
            admitted.map_err(|wait_ms| Refusal {
                // In seconds: rounded up, at least 1.
                retry_after_s: retry_after.then(|| wait_ms.div_ceil(SECOND_MS).max(1)),
                ..S::refusal(StatusCode::TOO_MANY_REQUESTS, None, "Rate Limit Exceeded")
            })?;
        }
        let authorization = parts.headers.get(header::AUTHORIZATION);
        self.service().check_token(authorization.map(|value| value.as_bytes()))
    }

    /// From the request to its answer, or to the end of its connection.
    async fn process(&self, target: Option<&S::Target>, parts: &Parts, body: Body) -> Result<Response, Refusal> {
        // The server notices that a client disconnected only once it has read the whole request.
        let body = body::to_bytes(body, S::BODY_BYTES_MAX).await.map_err(|error| {
            let message = format!("the body could not be read: {error}");
            S::refusal(StatusCode::BAD_REQUEST, None, &message)
        })?;
        self.admit(parts)?;
        let (fault, in_flight) = {
            let (method, uri) = (&parts.method, &parts.uri);
            let mut service = self.service();
            let faults = &mut service.common().faults;
            let fault = faults.for_request(method.as_str(), uri.path(), uri.query());
            (fault, service.begin(method, target))
        };
        if let Some(answer) = self.apply(fault.as_ref(), When::Before).await {
            return answer;
        }
        // The connection may notice first that its client disconnected: then there is no effect.
        tokio::task::yield_now().await;

        let request = Request {
            parts,
            body: &body,
            target,
            in_flight: &in_flight,
        };
        let answer = S::answer(self, request).await;
        if let Some(answer) = self.apply(fault.as_ref(), When::After).await {
            return answer;
        }
        self.wait_latency().await;
        answer
    }

    /// Applies a fault on one side of the effect. `None` if the request goes on.
    async fn apply(&self, fault: Option<&FaultFields>, side: When) -> Option<Result<Response, Refusal>> {
        let fault = fault?;
        if fault.close == Some(side) {
            return Some(Ok(cut()));
        }
        if fault.when != Some(side) {
            return None;
        }
        if let Some(ms) = fault.delay_ms {
            sleep(Duration::from_millis(ms)).await;
        }
        let status = StatusCode::from_u16(fault.status?).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.wait_latency().await;
        Some(match &fault.body {
            Some(body) => Ok((status, body.clone()).into_response()),
            None => {
                let usual = status.canonical_reason().unwrap_or("fault");
                let message = fault.message.as_deref().unwrap_or(usual);
                Err(Refusal {
                    retry_after_s: fault.retry_after_s,
                    ..S::refusal(status, fault.reason.as_deref(), message)
                })
            }
        })
    }

    async fn wait_latency(&self) {
        let latency_ms = self.service().common().latency_ms;
        if latency_ms > 0 {
            sleep(Duration::from_millis(latency_ms)).await;
        }
    }
}

/// Marks an answer that ends its connection instead.
#[derive(Clone)]
struct Cut;

/// Ends the connection in place of an answer: the HTTP library drops a connection whose answer fails before its first
/// byte, head and all.
fn cut() -> Response {
    let aborted = io::Error::from(io::ErrorKind::ConnectionAborted);
    let failing = stream::once(ready(Err::<Vec<u8>, _>(aborted)));
    let mut answer = Response::new(Body::from_stream(failing));
    answer.extensions_mut().insert(Cut);
    answer
}

/// Every path that is not for tests: the API's, and unknown ones.
async fn serve<S: Service>(State(pipeline): State<Arc<Pipeline<S>>>, request: axum::extract::Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = S::target(&parts);
    {
        let counters = &mut pipeline.traffic().counters;
        *counters
            .requests
            .entry(S::label(&parts.method, target.as_ref()))
            .or_default() += 1;
        counters.requests_in_flight += 1;
        counters.requests_in_flight_max = counters.requests_in_flight_max.max(counters.requests_in_flight);
    }
    let _counted = CountedRequest(&pipeline);
    let response = pipeline.process(target.as_ref(), &parts, body).await;
    response.unwrap_or_else(IntoResponse::into_response)
}

/// A request in flight, until it ends or is dropped.
struct CountedRequest<'a, S: Service>(&'a Pipeline<S>);

impl<S: Service> Drop for CountedRequest<'_, S> {
    fn drop(&mut self) {
        self.0.traffic().counters.requests_in_flight -= 1;
    }
}

/// Logs every request, however it ends, and ends all requests when the server stops.
async fn log<S: Service>(
    State(pipeline): State<Arc<Pipeline<S>>>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let mut line = LogLine {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        started: Instant::now(),
        outcome: "abandoned".to_owned(),
        server: S::NAME,
    };
    let mut stopping = pipeline.stopping.clone();
    let response = tokio::select! {
        biased;
        _ = stopping.changed() => cut(),
        response = next.run(request) => response,
    };
    line.outcome = if response.extensions().get::<Cut>().is_some() {
        "closed".to_owned()
    } else {
        response.status().as_str().to_owned()
    };
    response
}

/// Written when it is dropped: a request is dropped when its client disconnects. It leaves out headers, which hold the
/// token.
struct LogLine {
    method: Method,
    path: String,
    started: Instant,
    outcome: String,
    server: &'static str,
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (server, method, path, status) = (self.server, &self.method, &self.path, &self.outcome);
        tracing::info!(target: LOG_TARGET, server, %method, path, status, ms, "request");
    }
}
