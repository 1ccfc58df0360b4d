//! The state of a simulated Compute Engine, and what it decides of a request beside its effect: limits, token, faulty
//! answers, and how long `wait` blocks.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::admin;
use super::calls::Call;
use super::config::ServerConfig;
use super::refusal::Refusal;
use super::target::{ApiMethod, Target};
use super::world::World;
use crate::base::LOG_TARGET;
use crate::base::faults::Faults;
use crate::base::pipeline::{Pipeline, now_ms};
use crate::base::server::Problem;
use crate::base::service::{Request, Service};
use crate::base::state_file;

/// A simulated Compute Engine without its network.
pub(super) struct Compute {
    pub(super) config: ServerConfig,
    pub(super) world: World,
    pub(super) faults: Faults,
    /// Notified when operations were forgotten, or the state changed: wakes requests that wait.
    pub(super) changed: Arc<Notify>,
}

impl Compute {
    /// Writes the world to the state file.
    pub(super) fn save(&self) -> Result<(), Refusal> {
        let Some(path) = &self.config.state_file else {
            return Ok(());
        };
        state_file::save(path, &self.world).map_err(|error| {
            tracing::error!(target: LOG_TARGET, %error, "the state was not kept");
            Refusal::because(StatusCode::INTERNAL_SERVER_ERROR, "internalError", error.to_string())
        })
    }

    fn due_ms(&self, target: &Target) -> Option<u64> {
        let ApiMethod::Wait(name) = &target.method else {
            return None;
        };
        let operation = self.world.operation(&target.zone, name);
        operation.map(|operation| operation.due_ms)
    }
}

impl Service for Compute {
    const NAME: &'static str = "simulated Compute Engine";
    /// 500 endpoints with annotations take less than a hundred kilobytes.
    const BODY_BYTES_MAX: usize = 4 << 20;

    type Config = ServerConfig;
    type Target = Target;
    type InFlight = ();
    type State = World;

    fn open(mut config: ServerConfig) -> Result<Self, Problem> {
        let stored = config.state_file.as_deref().map(state_file::load).transpose()?;
        let world: World = stored.flatten().unwrap_or_default();
        if config.is_trial {
            config.state_file = None;
        }
        if let Some(path) = &config.state_file {
            // Finds out now whether the file can be written, rather than at the first request.
            state_file::save(path, &world)?;
        }
        Ok(Self {
            faults: Faults::new(config.faults.clone()),
            config,
            world,
            changed: Arc::default(),
        })
    }

    fn admin_routes() -> Router<Arc<Pipeline<Self>>> {
        admin::routes()
    }

    fn target(parts: &Parts) -> Option<Target> {
        Target::parse(&parts.method, parts.uri.path())
    }

    fn label(_method: &Method, target: Option<&Target>) -> String {
        target.map_or("(other)", Target::label).to_owned()
    }

    fn rate_limit_per_second(&self) -> Option<NonZeroU32> {
        self.config.rate_limit_per_second
    }

    fn latency_ms(&self) -> u64 {
        self.config.latency_ms
    }

    fn retry_after(&self) -> bool {
        self.config.retry_after
    }

    fn refusal(status: StatusCode, reason: Option<&str>, message: &str) -> Refusal {
        Refusal::because(status, reason.unwrap_or_else(|| Refusal::usual_reason(status)), message)
    }

    fn check_token(&self, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        let unauthorized = |reason, message| Err(Refusal::because(StatusCode::UNAUTHORIZED, reason, message));
        match authorization.and_then(|value| value.strip_prefix(b"Bearer ")) {
            None | Some(b"") => unauthorized("required", "Login Required."),
            Some(token) if self.config.token.as_ref().is_some_and(|wanted| !wanted.is(token)) => {
                unauthorized("authError", "Invalid Credentials")
            }
            Some(_) => Ok(()),
        }
    }

    fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    fn settle(&mut self, now_ms: u64) -> Result<(), Refusal> {
        if self.world.settle(now_ms) {
            return self.save();
        }
        Ok(())
    }

    fn state(&self) -> World {
        self.world.clone()
    }

    fn replace(&mut self, state: World) -> Result<(), Refusal> {
        self.world = state;
        self.save()?;
        self.changed.notify_waiters();
        Ok(())
    }

    fn begin(_pipeline: &Arc<Pipeline<Self>>, _method: &Method, _target: Option<&Target>) {}

    async fn answer(pipeline: &Pipeline<Self>, request: Request<'_, Self>) -> Result<Response, Refusal> {
        let target = request.target.ok_or_else(Refusal::nowhere)?;
        let answer = match &target.method {
            ApiMethod::Wait(_) => wait(pipeline, target, &request).await,
            _ => carry_out(pipeline, target, &request),
        };
        answer.map(|body| Json(body).into_response())
    }
}

fn carry_out(pipeline: &Pipeline<Compute>, target: &Target, request: &Request<'_, Compute>) -> Result<Value, Refusal> {
    let now_ms = now_ms();
    let mut compute = pipeline.service();
    compute.settle(now_ms)?;
    let call = Call {
        method: &request.parts.method,
        path: request.parts.uri.path(),
        query: request.parts.uri.query(),
        body: request.body,
        now_ms,
    };
    let answer = compute.answer(target, &call)?;
    if target.is_write() {
        compute.save()?;
    }
    Ok(answer)
}

/// Answers when the operation is done, or when the request has blocked for `wait_ms`.
async fn wait(pipeline: &Pipeline<Compute>, target: &Target, request: &Request<'_, Compute>) -> Result<Value, Refusal> {
    let began_ms = now_ms();
    let changed = Arc::clone(&pipeline.service().changed);
    loop {
        let mut notified = std::pin::pin!(changed.notified());
        // From here on a change wakes this request, even one that comes before it waits below.
        notified.as_mut().enable();
        let answer = carry_out(pipeline, target, request)?;
        let now_ms = now_ms();
        let (wait_ms, due_ms) = {
            let compute = pipeline.service();
            (compute.config.wait_ms, compute.due_ms(target))
        };
        let until_ms = began_ms + wait_ms;
        if answer.get("status").and_then(Value::as_str) == Some("DONE") || now_ms >= until_ms {
            return Ok(answer);
        }
        let wake_ms = due_ms.unwrap_or(until_ms).clamp(now_ms + 1, until_ms.max(now_ms + 1));
        let wake = Instant::now() + Duration::from_millis(wake_ms - now_ms);
        tokio::select! {
            () = notified => {}
            () = sleep_until(wake) => {}
        }
    }
}
