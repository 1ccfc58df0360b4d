//! What the Engine decides of a request beside its effect: limits, token, faulty answers, and taggings in flight.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;

use super::config::ServerConfig;
use super::engine::Engine;
use super::refusal::Refusal;
use super::target::Target;
use super::world::{Dump, World};
use crate::base::faults::Faults;
use crate::base::pipeline::{Pipeline, now_ms};
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
        self.pipeline.service().taggings.end(self.number);
    }
}

impl Service for Engine {
    const NAME: &'static str = "simulated Engine";
    /// A request under `/api/` takes a few hundred bytes.
    const BODY_BYTES_MAX: usize = 1 << 20;

    type Config = ServerConfig;
    type Target = Target;
    type InFlight = Option<Tagging>;
    type State = Dump;

    fn open(config: ServerConfig) -> Result<Self, Problem> {
        Self::new(config)
    }

    fn target(parts: &Parts) -> Option<Target> {
        Target::parse(parts.uri.path())
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

    fn retry_after(&self) -> bool {
        self.config.retry_after
    }

    fn refusal(status: StatusCode, _reason: Option<&str>, message: &str) -> Refusal {
        Refusal::new(status, message)
    }

    fn check_token(&self, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        match authorization.and_then(|value| value.strip_prefix(b"Token ")) {
            Some(token) if self.config.token.is(token) => Ok(()),
            _ => Err(Refusal::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong")),
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
        self.world = World::from_dump(self.config.seed, state);
        self.save()
    }

    fn begin(pipeline: &Arc<Pipeline<Self>>, method: &Method, target: Option<&Target>) -> Option<Tagging> {
        let Some(Target::Tag { resource, .. }) = target.filter(|_| *method == Method::POST) else {
            return None;
        };
        let (number, is_lost) = {
            let mut engine = pipeline.service();
            let lose = engine.config.lose_overlapping_taggings;
            engine.taggings.begin(resource, lose)
        };
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
