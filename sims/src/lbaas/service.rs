//! What the Engine decides of a request beside its effect: limits, token, faulty answers, and taggings in flight.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;

use super::config::ServerConfig;
use super::engine::Engine;
use super::refusal::Refusal;
use super::taggings::Taggings;
use super::target::Target;
use super::world::{Dump, World};
use super::LOG_TARGET;
use crate::base::faults::{FaultFields, Faults};
use crate::base::pipeline::{Pipeline, now_ms};
use crate::base::refusal::{retry_after_s, usual_message};
use crate::base::server::Problem;
use crate::base::service::{Request, Service};

/// A tagging in flight, from its admission until its answer is ready.
pub(super) struct Tagging {
    pipeline: Arc<Pipeline<Engine>>,
    number: u64,
    pub(super) is_lost: bool,
}

impl Drop for Tagging {
    fn drop(&mut self) {
        self.pipeline.traffic().counters.own.end(self.number);
    }
}

impl Service for Engine {
    const NAME: &'static str = "simulated Engine";
    /// A request under `/api/` takes a few hundred bytes.
    const BODY_BYTES_MAX: usize = 1 << 20;

    type Config = ServerConfig;
    type Counters = Taggings;
    type Target = Target;
    type InFlight = Option<Tagging>;
    type State = Dump;
    type Refusal = Refusal;

    fn open(config: ServerConfig) -> Result<Self, Problem> {
        Self::new(config)
    }

    fn log(method: &Method, path: &str, status: &str, ms: u64) {
        tracing::info!(target: LOG_TARGET, %method, %path, status, ms, "request");
    }

    fn target(parts: &Parts) -> Result<Option<Target>, Refusal> {
        let path = parts.uri.path();
        if !path.starts_with("/api/") {
            return Err(Refusal::not_found());
        }
        Ok(Target::parse(path))
    }

    fn label(method: &Method, target: Option<&Target>) -> String {
        let known = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
        let method = known.contains(method).then(|| method.as_str());
        let path = target.map_or_else(|| "(other)".to_owned(), Target::template);
        format!("{} {path}", method.unwrap_or("(other)"))
    }

    fn rate_limit_per_second(&self) -> Option<NonZeroU32> {
        self.config.rate_limit_per_second
    }

    fn latency_ms(&self) -> u64 {
        self.config.latency_ms
    }

    fn rate_limited(&self, wait_ns: u64) -> Refusal {
        Refusal {
            retry_after_s: self.config.retry_after.then(|| retry_after_s(wait_ns)),
            ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too many requests")
        }
    }

    fn check_token(&self, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        match authorization.and_then(|value| value.strip_prefix(b"Token ")) {
            Some(token) if self.config.token.is(token) => Ok(()),
            _ => Err(Refusal::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong")),
        }
    }

    fn faulty(&self, status: StatusCode, fault: &FaultFields) -> Refusal {
        let message = fault.message.as_deref().unwrap_or_else(|| usual_message(status));
        Refusal {
            retry_after_s: fault.retry_after_s,
            ..Refusal::new(status, message)
        }
    }

    fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    fn settle(&mut self, now_ms: u64) -> Result<(), Refusal> {
        Self::settle(self, now_ms)
    }

    fn state(&self) -> Dump {
        self.world.dump()
    }

    fn replace(&mut self, state: Dump) -> Result<(), Refusal> {
        self.world = World::from_dump(self.config.seed, state).map_err(Refusal::unprocessable)?;
        self.save()
    }

    fn begin(pipeline: &Arc<Pipeline<Self>>, method: &Method, target: Option<&Target>) -> Option<Tagging> {
        let Some(Target::Tag { resource, .. }) = target.filter(|_| *method == Method::POST) else {
            return None;
        };
        let lose = pipeline.service().config.lose_overlapping_taggings;
        let (number, is_lost) = pipeline.traffic().counters.own.begin(resource, lose);
        Some(Tagging {
            pipeline: Arc::clone(pipeline),
            number,
            is_lost,
        })
    }

    async fn answer(pipeline: &Pipeline<Self>, request: Request<'_, Self>) -> Result<Response, Refusal> {
        pipeline.service().answer(now_ms(), &request)
    }
}
