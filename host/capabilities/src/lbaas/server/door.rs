//! The stages that a request passes on its way to the Engine and back, and the additional paths for tests.
//!
//! ```text
//! log line -> counted -> body -> rate limit -> token -> fault before -> effect -> fault after -> latency
//! ```
//!
//! A request whose client disconnects is dropped wherever it waits: before the effect without a trace, after the effect
//! without an answer.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::{self, Body},
    extract::{ConnectInfo, DefaultBodyLimit, Request, State, rejection::JsonRejection},
    http::{Method, StatusCode, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{sync::watch, time::Instant};

use super::{
    LOG_TARGET, ServerConfig,
    config::{RetryAfter, Token},
    engine::{Call, Engine, Reply},
    faults::{Fault, FaultEffect, When},
    refusal::Refusal,
    target::Target,
    traffic::{Counters, End, Traffic},
    world::Dump,
};
use crate::local_only::for_this_machine;
use crate::sim::connection::Connection;

/// A request under `/api/` is a few hundred bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// A state in a PUT has a few hundred bytes per object, and may hold hundreds of thousands of objects.
const STATE_BYTES_MAX: usize = 1 << 28;

/// The shared state of all requests.
pub(super) struct Door {
    token: Token,
    latency: Duration,
    retry_after: RetryAfter,
    lose_overlapping_taggings: bool,
    clock: Clock,
    engine: Mutex<Engine>,
    traffic: Mutex<Traffic>,
    /// Closed when the server stops.
    stopping: watch::Receiver<()>,
}

/// Wall-clock time that advances evenly, whatever happens to the machine's clock meanwhile.
struct Clock {
    started: Instant,
    started_at: Duration,
}

impl Clock {
    fn start() -> Self {
        // A clock before 1970 may count as 1970: only differences matter.
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_at,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from((self.started_at + self.started.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }

    /// Since the start.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Door {
    pub(super) fn new(config: ServerConfig, engine: Engine, stopping: watch::Receiver<()>) -> Self {
        Self {
            token: config.token,
            latency: Duration::from_millis(config.latency_ms),
            retry_after: config.retry_after,
            lose_overlapping_taggings: config.lose_overlapping_taggings,
            clock: Clock::start(),
            engine: Mutex::new(engine),
            traffic: Mutex::new(Traffic::new(config.rate_limit_per_second)),
            stopping,
        }
    }

    pub(super) fn router(self) -> Router {
        let door = Arc::new(self);
        Router::new()
            .route("/state", get(get_state).put(put_state))
            .route("/requests", get(get_requests).delete(delete_requests))
            .route("/faults", get(get_faults).post(post_fault).delete(delete_faults))
            .route_layer(middleware::from_fn(for_this_machine))
            .layer(DefaultBodyLimit::max(STATE_BYTES_MAX))
            .fallback(serve)
            .layer(middleware::from_fn_with_state(Arc::clone(&door), log))
            .with_state(door)
    }

    /// Never held across an await. The state file is written under this lock: a line takes microseconds.
    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never held across an await.
    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        while stopping.changed().await.is_ok() {}
    }

    fn admit(&self, parts: &Parts) -> Result<(), Refusal> {
        if let Err(wait_ns) = self.traffic().admit(self.clock.now_ns()) {
            return Err(self.rate_limited("too many requests", wait_ns));
        }
        let authorization = parts.headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        if !self.token.admits(authorization) {
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong"));
        }
        Ok(())
    }

    fn rate_limited(&self, message: &str, wait_ns: u64) -> Refusal {
        let retry_after_s = self.retry_after.seconds(wait_ns);
        Refusal {
            retry_after_s,
            ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, message)
        }
    }

    fn faulty_status(&self, code: u16, message: Option<String>) -> Refusal {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let message = message.unwrap_or_else(|| status.canonical_reason().unwrap_or("fault").to_owned());
        if status == StatusCode::TOO_MANY_REQUESTS {
            return self.rate_limited(&message, 0);
        }
        Refusal::new(status, message)
    }

    fn fault_for(&self, parts: &Parts) -> Option<FaultEffect> {
        let uri = &parts.uri;
        self.engine()
            .faults
            .for_request(parts.method.as_str(), uri.path(), uri.query())
    }

    /// From the request to its answer, or to the end of its connection.
    async fn attend(
        &self,
        connection: &Connection,
        target: Option<&Target>,
        parts: &Parts,
        body: Body,
    ) -> Result<Response, Refusal> {
        // The server can only notice that a client disconnected once its request is read completely.
        let body = body::to_bytes(body, BODY_BYTES_MAX)
            .await
            .map_err(|error| Refusal::bad_request(format!("the body could not be read: {error}")))?;
        self.admit(parts)?;

        let fault = self.fault_for(parts);
        let tagging = match target {
            Some(Target::Tag { resource, .. }) if parts.method == Method::POST => Some(Tagging::begin(self, resource)),
            _ => None,
        };
        match &fault {
            Some(FaultEffect::Close { when: When::Before }) => return Ok(connection.cut()),
            Some(FaultEffect::Delay { ms, when: When::Before }) => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
            }
            Some(FaultEffect::Status {
                code,
                message,
                when: When::Before,
            }) => {
                tokio::time::sleep(self.latency).await;
                return Err(self.faulty_status(*code, message.clone()));
            }
            _ => {}
        }
        // Let the connection first notice that its client disconnected: then there is no effect.
        tokio::task::yield_now().await;

        let call = Call {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            body: &body,
            target,
            is_lost: tagging.as_ref().is_some_and(|tagging| tagging.is_lost),
        };
        let reply = self.engine().answer(self.clock.now_ms(), &call);

        match fault {
            Some(FaultEffect::Close { when: When::After }) => return Ok(connection.cut()),
            Some(FaultEffect::Delay { ms, when: When::After }) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            Some(FaultEffect::Status {
                code,
                message,
                when: When::After,
            }) => {
                tokio::time::sleep(self.latency).await;
                return Err(self.faulty_status(code, message));
            }
            _ => {}
        }
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        reply.map(|Reply { status, body }| match body {
            Some(body) => (status, Json(body)).into_response(),
            None => status.into_response(),
        })
    }
}

/// Everything but the paths for tests: the Engine, and unknown paths.
async fn serve(
    State(door): State<Arc<Door>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    if !parts.uri.path().starts_with("/api/") {
        return Refusal::not_found().into_response();
    }
    let target = Target::parse(parts.uri.path());
    let visit = Visit::begin(&door, &parts.method, target.as_ref());
    let response = match door.attend(&connection, target.as_ref(), &parts, body).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    };
    visit.end(if connection.is_cut() {
        End::Cut
    } else {
        End::Answered(response.status())
    });
    response
}

/// A request in flight, until it ends or is dropped.
struct Visit<'a> {
    door: &'a Door,
    end: Option<End>,
}

impl<'a> Visit<'a> {
    fn begin(door: &'a Door, method: &Method, target: Option<&Target>) -> Self {
        // Clients may invent methods and paths without end; the counters must not grow with them.
        let known = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
        let method = if known.contains(method) {
            method.as_str()
        } else {
            "(other)"
        };
        let path = target.map_or_else(|| "(other)".to_owned(), Target::template);
        door.traffic().begin(format!("{method} {path}"));
        Self { door, end: None }
    }

    fn end(mut self, end: End) {
        self.end = Some(end);
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.door.traffic().end(self.end.take().unwrap_or(End::Abandoned));
    }
}

/// A running tagging, from its arrival until its answer is ready.
struct Tagging<'a> {
    door: &'a Door,
    number: u64,
    is_lost: bool,
}

impl<'a> Tagging<'a> {
    fn begin(door: &'a Door, resource: &str) -> Self {
        let (number, is_lost) = door.traffic().begin_tagging(resource, door.lose_overlapping_taggings);
        Self { door, number, is_lost }
    }
}

impl Drop for Tagging<'_> {
    fn drop(&mut self) {
        self.door.traffic().end_tagging(self.number);
    }
}

/// Logs a line for every request, however it ends; and ends all requests when the server ends.
async fn log(
    State(door): State<Arc<Door>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let mut line = LogLine {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        started: Instant::now(),
        outcome: Outcome::Abandoned,
    };
    let response = tokio::select! {
        biased;
        () = door.stopped() => connection.cut(),
        response = next.run(request) => response,
    };
    line.outcome = if connection.is_cut() {
        Outcome::Cut
    } else {
        Outcome::Status(response.status())
    };
    response
}

enum Outcome {
    Status(StatusCode),
    Cut,
    Abandoned,
}

/// Logs when it is dropped, since the request of a disconnected client is dropped, too. Excludes headers, which hold
/// the token.
struct LogLine {
    method: Method,
    path: String,
    started: Instant,
    outcome: Outcome,
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let status = match &self.outcome {
            Outcome::Status(status) => status.as_str(),
            Outcome::Cut => "closed",
            Outcome::Abandoned => "abandoned",
        };
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(target: LOG_TARGET, method = %self.method, path = %self.path, status, ms, "request");
    }
}

async fn get_state(State(door): State<Arc<Door>>) -> Result<Json<Dump>, Refusal> {
    door.engine().dump(door.clock.now_ms()).map(Json)
}

async fn put_state(
    State(door): State<Arc<Door>>,
    body: Result<Json<Dump>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(dump) = body?;
    door.engine().load(dump)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn get_requests(State(door): State<Arc<Door>>) -> Json<Counters> {
    Json(door.traffic().counters.clone())
}

async fn delete_requests(State(door): State<Arc<Door>>) -> StatusCode {
    door.traffic().counters = Counters::default();
    StatusCode::NO_CONTENT
}

async fn get_faults(State(door): State<Arc<Door>>) -> Json<Vec<Fault>> {
    Json(door.engine().faults.left().to_vec())
}

/// Whatever settled until now did so without the new fault.
async fn post_fault(
    State(door): State<Arc<Door>>,
    body: Result<Json<Fault>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(fault) = body?;
    let mut engine = door.engine();
    engine.settle(door.clock.now_ms())?;
    engine.faults.add(fault);
    Ok(StatusCode::CREATED)
}

async fn delete_faults(State(door): State<Arc<Door>>) -> Result<StatusCode, Refusal> {
    let mut engine = door.engine();
    engine.settle(door.clock.now_ms())?;
    engine.faults.clear();
    Ok(StatusCode::NO_CONTENT)
}
