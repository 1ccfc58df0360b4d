//! What a request passes on its way to the API and back.
//!
//! ```text
//! log line -> counted -> body -> rate limit -> token -> fault before -> effect -> fault after -> latency
//! ```
//!
//! A request whose client disconnects is dropped wherever it waits: before the effect without a trace, after the effect
//! without an answer.

use std::future::ready;
use std::io;
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
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use trueup_base::clock::{Clock as _, SystemClock};

use super::faults::{FaultFields, When};
use super::refusal::Refusal;
use super::service::{Request, Service};
use super::traffic::Traffic;
use super::{LOG_TARGET, admin};

/// Milliseconds since 1970. They advance evenly, even if the machine's clock is set meanwhile.
pub(crate) fn now_ms() -> u64 {
    SystemClock.steady_ms()
}

/// What all requests to one server share.
pub(crate) struct Pipeline<S: Service> {
    started: Instant,
    service: Mutex<S>,
    traffic: Mutex<Traffic>,
    /// Closed when the server stops.
    stopping: watch::Receiver<()>,
}

impl<S: Service> Pipeline<S> {
    pub(crate) fn new(service: S, stopping: watch::Receiver<()>) -> Self {
        Self {
            started: Instant::now(),
            traffic: Mutex::new(Traffic::new(service.rate_limit_per_second())),
            service: Mutex::new(service),
            stopping,
        }
    }

    pub(crate) fn router(self) -> Router {
        let pipeline = Arc::new(self);
        admin::routes()
            .fallback(serve::<S>)
            .layer(middleware::from_fn_with_state(Arc::clone(&pipeline), log::<S>))
            .with_state(pipeline)
    }

    /// Nanoseconds since the server started.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
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

    async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        while stopping.changed().await.is_ok() {}
    }

    fn admit(&self, parts: &Parts) -> Result<(), Refusal> {
        let admitted = self.traffic().admit(self.now_ns());
        let service = self.service();
        admitted.map_err(|wait_ns| Refusal {
            // In seconds: rounded up, at least 1.
            retry_after_s: service.retry_after().then(|| wait_ns.div_ceil(1_000_000_000).max(1)),
            ..S::refusal(StatusCode::TOO_MANY_REQUESTS, None, "Rate Limit Exceeded")
        })?;
        let authorization = parts.headers.get(header::AUTHORIZATION);
        service.check_token(authorization.map(|value| value.as_bytes()))
    }

    /// From the request to its answer, or to the end of its connection.
    async fn process(
        self: &Arc<Self>,
        target: Option<&S::Target>,
        parts: &Parts,
        body: Body,
    ) -> Result<Response, Refusal> {
        // The server notices that a client disconnected only once it has read the whole request.
        let body = body::to_bytes(body, S::BODY_BYTES_MAX).await.map_err(|error| {
            S::refusal(
                StatusCode::BAD_REQUEST,
                None,
                &format!("the body could not be read: {error}"),
            )
        })?;
        self.admit(parts)?;
        let fault = {
            let (method, uri) = (parts.method.as_str(), &parts.uri);
            let mut service = self.service();
            service.faults().for_request(method, uri.path(), uri.query())
        };
        let in_flight = S::begin(self, &parts.method, target);
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
        let latency_ms = self.service().latency_ms();
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

fn is_cut(answer: &Response) -> bool {
    answer.extensions().get::<Cut>().is_some()
}

/// Every path that is not for tests: the API's, and unknown ones.
async fn serve<S: Service>(State(pipeline): State<Arc<Pipeline<S>>>, request: axum::extract::Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = S::target(&parts);
    pipeline.traffic().begin(S::label(&parts.method, target.as_ref()));
    let _counted = CountedRequest(&pipeline);
    let response = pipeline.process(target.as_ref(), &parts, body).await;
    response.unwrap_or_else(IntoResponse::into_response)
}

/// A request in flight, until it ends or is dropped.
struct CountedRequest<'a, S: Service>(&'a Pipeline<S>);

impl<S: Service> Drop for CountedRequest<'_, S> {
    fn drop(&mut self) {
        self.0.traffic().end();
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
    let response = tokio::select! {
        biased;
        () = pipeline.stopped() => cut(),
        response = next.run(request) => response,
    };
    line.outcome = if is_cut(&response) {
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
