//! The stages that a request passes on its way in and back.
//!
//! ```text
//! log line -> counted -> body -> rate limit -> token -> fault before -> effect -> fault after -> latency
//! ```
//!
//! A request whose client disconnects is dropped wherever it waits: before the effect without a trace, after the effect
//! without an answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{self, Body};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::calls::{Call, Desk};
use super::faults::{FaultEffect, Faults, When};
use super::refusal::Refusal;
use super::state_file;
use super::target::{Ask, Target};
use super::time::Clock;
use super::traffic::{End, Traffic};
use super::world::World;
use super::{LOG_TARGET, ServerConfig, admin};
use crate::sim::connection::Connection;

/// 500 endpoints with annotations are less than a hundred kilobytes.
const BODY_BYTES_MAX: usize = 4 << 20;

/// A state in a PUT has a few hundred bytes per endpoint.
const STATE_BYTES_MAX: usize = 1 << 28;

/// The shared state of all requests.
pub(super) struct Door {
    pub(super) clock: Clock,
    inside: Mutex<Inside>,
    traffic: Mutex<Traffic>,
    /// Notified whenever operations are forgotten or the settings change, for waiting requests.
    pub(super) changed: Notify,
    /// Closed when the server stops.
    stopping: watch::Receiver<()>,
}

/// The state that requests change.
pub(super) struct Inside {
    pub(super) config: ServerConfig,
    pub(super) world: World,
    pub(super) faults: Faults,
}

impl Inside {
    /// Applies the operations that are due.
    pub(super) fn settle(&mut self, now_ms: u64) -> Result<(), Refusal> {
        let settled = self.world.settle(now_ms);
        if let Some(keep_ms) = self.config.keep_operations_ms {
            self.world.forget_before(now_ms.saturating_sub(keep_ms));
        }
        if settled { self.save() } else { Ok(()) }
    }

    /// Writes the world to the state file.
    pub(super) fn save(&self) -> Result<(), Refusal> {
        let Some(path) = &self.config.state_file else {
            return Ok(());
        };
        state_file::save(path, &self.world).map_err(|error| {
            tracing::error!(target: LOG_TARGET, %error, "the state was not kept");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internalError", error.to_string())
        })
    }
}

impl Door {
    pub(super) fn new(config: ServerConfig, world: World, stopping: watch::Receiver<()>) -> Self {
        let traffic = Traffic::new(config.rate_limit_per_second);
        let faults = Faults::new(config.faults.clone());
        Self {
            clock: Clock::start(),
            inside: Mutex::new(Inside { config, world, faults }),
            traffic: Mutex::new(traffic),
            changed: Notify::new(),
            stopping,
        }
    }

    pub(super) fn router(self) -> Router {
        let door = Arc::new(self);
        admin::routes()
            .layer(DefaultBodyLimit::max(STATE_BYTES_MAX))
            .fallback(serve)
            .layer(middleware::from_fn_with_state(Arc::clone(&door), log))
            .with_state(door)
    }

    /// Never held across an await. The state file is written under this lock.
    pub(super) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never held across an await.
    pub(super) fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        while stopping.changed().await.is_ok() {}
    }

    fn admit(&self, parts: &Parts) -> Result<(), Refusal> {
        let admitted = self.traffic().admit(self.clock.now_ns());
        let inside = self.inside();
        let config = &inside.config;
        if let Err(wait_ns) = admitted {
            let status = StatusCode::from_u16(config.rate_limit_status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
            return Err(Refusal {
                retry_after_s: config.retry_after.then_some(wait_ns.div_ceil(1_000_000_000).max(1)),
                ..Refusal::new(status, "rateLimitExceeded", "Rate Limit Exceeded")
            });
        }
        let unauthorized = |reason, message| Err(Refusal::new(StatusCode::UNAUTHORIZED, reason, message));
        let authorization = parts.headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        match authorization.and_then(|value| value.strip_prefix(b"Bearer ")) {
            None | Some(b"") => unauthorized("required", "Login Required."),
            Some(token) if config.token.as_ref().is_some_and(|wanted| !wanted.is(token)) => {
                unauthorized("authError", "Invalid Credentials")
            }
            Some(_) => Ok(()),
        }
    }

    fn fault_for(&self, parts: &Parts) -> Option<FaultEffect> {
        let uri = &parts.uri;
        let mut inside = self.inside();
        inside
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
            .map_err(|error| Refusal::invalid(format!("the body could not be read: {error}")))?;
        self.admit(parts)?;
        let fault = self.fault_for(parts);
        if let Some(response) = self.fault_happens(fault.as_ref(), When::Before, connection).await {
            return response;
        }
        // Let the connection first notice that its client disconnected: then there is no effect.
        tokio::task::yield_now().await;

        let target = target.ok_or_else(Refusal::nowhere)?;
        let reply = match &target.ask {
            Ask::Wait(_) => self.wait(target, parts).await,
            _ => self.answer(target, parts, &body),
        };
        if let Some(response) = self.fault_happens(fault.as_ref(), When::After, connection).await {
            return response;
        }
        let latency_ms = self.inside().config.latency_ms;
        if latency_ms > 0 {
            sleep(Duration::from_millis(latency_ms)).await;
        }
        reply.map(|body| Json(body).into_response())
    }

    /// Applies a fault on one side of the request's effect; returns `None` if the request continues.
    async fn fault_happens(
        &self,
        fault: Option<&FaultEffect>,
        side: When,
        connection: &Connection,
    ) -> Option<Result<Response, Refusal>> {
        match fault? {
            FaultEffect::Close { when } if *when == side => Some(Ok(connection.cut())),
            FaultEffect::Delay { ms, when } if *when == side => {
                sleep(Duration::from_millis(*ms)).await;
                None
            }
            FaultEffect::Status {
                code,
                reason,
                message,
                retry_after_s,
                body,
                when,
            } if *when == side => {
                let status = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                if let Some(body) = body {
                    return Some(Ok((status, body.clone()).into_response()));
                }
                let usual = status.canonical_reason().unwrap_or("fault");
                let reason = reason.as_deref().unwrap_or_else(|| Refusal::usual_reason(status));
                Some(Err(Refusal {
                    retry_after_s: *retry_after_s,
                    ..Refusal::new(status, reason, message.as_deref().unwrap_or(usual))
                }))
            }
            _ => None,
        }
    }

    fn answer(&self, target: &Target, parts: &Parts, body: &[u8]) -> Result<Value, Refusal> {
        let now_ms = self.clock.now_ms();
        let mut inside = self.inside();
        inside.settle(now_ms)?;
        let Inside { config, world, faults } = &mut *inside;
        let call = Call {
            method: &parts.method,
            path: parts.uri.path(),
            query: parts.uri.query(),
            body,
            now_ms,
        };
        let answer = Desk { world, faults, config }.answer(target, &call)?;
        if matches!(target.ask, Ask::InsertNeg | Ask::Attach(_) | Ask::Detach(_)) {
            inside.save()?;
        }
        Ok(answer)
    }

    /// Returns when the operation is done, or after blocking long enough.
    async fn wait(&self, target: &Target, parts: &Parts) -> Result<Value, Refusal> {
        let began_ms = self.clock.now_ms();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on, no change is missed, even before the wait below begins.
            changed.as_mut().enable();
            let answer = self.answer(target, parts, &[])?;
            let now_ms = self.clock.now_ms();
            let until_ms = began_ms + self.inside().config.wait_ms;
            if answer.get("status").and_then(Value::as_str) == Some("DONE") || now_ms >= until_ms {
                return Ok(answer);
            }
            let wake_ms = self
                .due_ms(target)
                .unwrap_or(until_ms)
                .clamp(now_ms + 1, until_ms.max(now_ms + 1));
            let wake = Instant::now() + Duration::from_millis(wake_ms - now_ms);
            tokio::select! {
                () = changed => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    fn due_ms(&self, target: &Target) -> Option<u64> {
        let Ask::Wait(name) = &target.ask else { return None };
        let inside = self.inside();
        inside
            .world
            .operation(&target.zone, name)
            .map(|operation| operation.due_ms)
    }
}

/// Everything but the paths for tests: the API, and unknown paths.
async fn serve(
    State(door): State<Arc<Door>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let target = Target::parse(&parts.method, parts.uri.path());
    let visit = Visit::begin(&door, target.as_ref());
    let response = match door.attend(&connection, target.as_ref(), &parts, body).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    };
    visit.end(if connection.is_cut() {
        End::Cut
    } else {
        End::Answered(response.status().as_u16())
    });
    response
}

/// A request in flight, until it ends or is dropped.
struct Visit<'a> {
    door: &'a Door,
    end: Option<End>,
}

impl<'a> Visit<'a> {
    fn begin(door: &'a Door, target: Option<&Target>) -> Self {
        // Clients may invent paths without end; the counters must not grow with them.
        let label = target.map_or("(other)", Target::label);
        let now_ns = door.clock.now_ns();
        door.traffic().begin(label, now_ns);
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
        outcome: "abandoned".to_owned(),
    };
    let response = tokio::select! {
        biased;
        () = door.stopped() => connection.cut(),
        response = next.run(request) => response,
    };
    line.outcome = if connection.is_cut() {
        "closed".to_owned()
    } else {
        response.status().as_str().to_owned()
    };
    response
}

/// Logs when it is dropped, since the request of a disconnected client is dropped, too. Excludes headers, which hold
/// the token.
struct LogLine {
    method: Method,
    path: String,
    started: Instant,
    outcome: String,
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(target: LOG_TARGET, method = %self.method, path = %self.path, status = self.outcome, ms, "request");
    }
}
