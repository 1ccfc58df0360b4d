//! Carries out requests: turns the state and a request into effects and an answer.
//!
//! Knows HTTP as methods, paths and bodies, and no network: `base` handles rate limit, latency and most faults.
//!
//! ```text
//! request -> settle what is due -> check -> world -> state file -> answer
//! ```

use std::sync::{Arc, Weak};

use axum::Json;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::config::ServerConfig;
use super::kinds::{Kind, StateId};
use super::lists::Listing;
use super::target::Target;
use super::world::{Dump, Object, World};
use super::{Refusal, bodies};
use crate::StartError;
use crate::base::faults::Faults;
use crate::base::pipeline::{Common, Pipeline, Request, Service, now_ms};
use crate::base::state_file;

/// A simulated Engine without its network.
pub(super) struct Engine {
    world: World,
    config: ServerConfig,
    common: Common,
    taggings: Taggings,
}

/// A tagging in flight: it is held from its admission until its answer is ready.
pub(super) struct Tagging {
    resource: String,
    is_lost: bool,
}

impl Service for Engine {
    const NAME: &'static str = "simulated Engine";
    /// A request under `/api/` takes a few hundred bytes.
    const BODY_BYTES_MAX: usize = 1 << 20;

    type Config = ServerConfig;
    type Target = Target;
    type InFlight = Option<Arc<Tagging>>;
    type State = Dump;

    /// Adds the configured load balancers that are not in the state file.
    fn open(config: ServerConfig) -> Result<Self, StartError> {
        config.check()?;
        let stored: Option<Dump> = state_file::load(config.state_file.as_deref())?;
        let mut world = World::from_dump(config.seed, stored.unwrap_or_default());
        for identifier in &config.load_balancers {
            add_balancer(&mut world, identifier)?;
        }
        Ok(Self {
            world,
            common: Common {
                latency_ms: config.latency_ms,
                rate_limit_per_second: config.rate_limit_per_second,
                retry_after: config.retry_after,
                state_file: config.state_file.clone().filter(|_| !config.is_trial),
                faults: Faults::new(config.faults.clone()),
            },
            config,
            taggings: Taggings::default(),
        })
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

    fn refusal(status: StatusCode, _reason: Option<&str>, message: &str) -> Refusal {
        Refusal::new(status, message)
    }

    fn check_token(&self, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        match authorization.and_then(|value| value.strip_prefix(b"Token ")) {
            Some(token) if self.config.token.is(token) => Ok(()),
            _ => Err(Refusal::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong")),
        }
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    /// Settles the objects that are due: each is deployed, or fails if a fault says so.
    fn settle(&mut self, now_ms: u64) -> Result<(), Refusal> {
        let due: Vec<Object> = self.world.due(now_ms).cloned().collect();
        if due.is_empty() {
            return Ok(());
        }
        for object in due {
            let is_new = object.state == StateId::NewlyCreated;
            let method = if is_new { "POST" } else { "PUT" };
            let state = match self.common.faults.for_later(method, &object.path()) {
                Some(_) => StateId::DeploymentError,
                None => StateId::Deployed,
            };
            self.world.put(Object {
                state,
                settles_at_ms: None,
                ..object
            });
        }
        self.save()
    }

    fn state(&self) -> Dump {
        self.world.dump()
    }

    fn replace(&mut self, state: Dump) -> Result<(), Refusal> {
        self.world = World::from_dump(self.config.seed, state);
        self.save()
    }

    fn begin(&mut self, method: &Method, target: Option<&Target>) -> Option<Arc<Tagging>> {
        let Some(Target::Tag(resource, _)) = target.filter(|_| *method == Method::POST) else {
            return None;
        };
        let lose = self.config.lose_overlapping_taggings;
        Some(self.taggings.begin(resource, lose))
    }

    async fn answer(pipeline: &Pipeline<Self>, request: Request<'_, Self>) -> Result<Response, Refusal> {
        pipeline.service().carry_out(now_ms(), &request)
    }
}

impl Engine {
    /// Carries out one request.
    fn carry_out(&mut self, now_ms: u64, request: &Request<'_, Self>) -> Result<Response, Refusal> {
        self.settle(now_ms)?;
        let target = request.target.ok_or_else(Refusal::not_found)?;
        let body = match (&request.parts.method, target) {
            (&Method::GET, Target::Collection(kind)) => self.list(*kind, &request.parts.uri)?,
            (&Method::POST, Target::Collection(kind)) if *kind != Kind::LoadBalancer => {
                let body = self.write(now_ms, *kind, None, request)?;
                return Ok((StatusCode::CREATED, Json(body)).into_response());
            }
            (&Method::GET, Target::Object(kind, identifier)) => {
                bodies::object_in_full(self.existing(*kind, identifier)?, &self.world)
            }
            (&Method::PUT, Target::Object(kind, identifier)) if *kind != Kind::LoadBalancer => {
                self.write(now_ms, *kind, Some(identifier), request)?
            }
            (&Method::DELETE, Target::Object(kind, identifier)) if *kind != Kind::LoadBalancer => {
                self.destroy(*kind, identifier)?
            }
            (&Method::GET, Target::Resources) => self.list_resources(&request.parts.uri)?,
            (&Method::GET, Target::Resource(identifier)) => {
                bodies::resource_in_full(self.existing_resource(identifier)?, &self.world)
            }
            (&Method::POST, Target::Tag(resource, tag)) => self.tag(resource, tag, request)?,
            (&Method::DELETE, Target::Tag(resource, tag)) => {
                self.untag(resource, tag)?;
                return Ok(StatusCode::NO_CONTENT.into_response());
            }
            (method, _) => {
                let message = format!("`{method}` is no method of this path");
                return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message));
            }
        };
        Ok(Json(body).into_response())
    }

    fn list(&self, kind: Kind, uri: &Uri) -> Result<Value, Refusal> {
        let listing = Listing::read(uri, Some(kind))?;
        let fits = |object: &&Object| {
            let mut filters = listing.filters.iter();
            object.kind == kind && filters.all(|(name, value)| object.fields.get(name).is_some_and(|it| it == value))
        };
        let objects: Vec<&Object> = self.world.objects.values().filter(fits).collect();
        Ok(listing.page_of(&objects, |object| bodies::object_in_short(object)))
    }

    fn list_resources(&self, uri: &Uri) -> Result<Value, Refusal> {
        let listing = Listing::read(uri, None)?;
        let tag = listing.tag_name.as_deref();
        if tag.is_some_and(|tag| !self.world.tags.contains_key(tag)) {
            return Err(Refusal::unprocessable("unknown tag"));
        }
        let objects: Vec<&Object> = match tag {
            Some(tag) => self.world.tagged(tag).collect(),
            None => self.world.objects.values().collect(),
        };
        let show = |object: &&Object| bodies::resource_in_short(object, self.config.resource_type_in_lists);
        Ok(listing.page_of(&objects, show))
    }

    /// Creates an object, or updates the one with this identifier. Settles it if that takes no time, and shows it.
    fn write(
        &mut self,
        now_ms: u64,
        kind: Kind,
        identifier: Option<&str>,
        request: &Request<'_, Self>,
    ) -> Result<Value, Refusal> {
        let existing = identifier
            .map(|identifier| self.existing(kind, identifier))
            .transpose()?;
        let body = bodies::parse_json(&request.parts.headers, request.body)?;
        let fields = bodies::parse_fields(kind, identifier, body, &self.world)?;
        let settles_at_ms = Some(now_ms.saturating_add(self.config.settle_ms));
        let object = match existing.cloned() {
            Some(existing) => Object {
                fields,
                state: StateId::Updating,
                settles_at_ms,
                ..existing
            },
            None => Object {
                kind,
                identifier: self.world.draw_identifier(),
                fields,
                tags: Default::default(),
                state: StateId::NewlyCreated,
                settles_at_ms,
            },
        };
        let identifier = object.identifier.clone();
        self.world.put(object);
        self.save()?;
        self.settle(now_ms)?;
        let object = self.existing(kind, &identifier)?;
        Ok(bodies::object_in_full(object, &self.world))
    }

    fn destroy(&mut self, kind: Kind, identifier: &str) -> Result<Value, Refusal> {
        let object = self.existing(kind, identifier)?;
        if self.world.is_referred_to(object) {
            return Err(Refusal::new(StatusCode::CONFLICT, "in use"));
        }
        let body = bodies::object_in_full(object, &self.world);
        self.world.destroy(identifier);
        self.save()?;
        Ok(body)
    }

    fn tag(&mut self, identifier: &str, tag: &str, request: &Request<'_, Self>) -> Result<Value, Refusal> {
        let body = bodies::parse_json(&request.parts.headers, request.body)?;
        if !body.is_string() {
            let message = "the body of a tagging must be text, and may be empty text";
            return Err(Refusal::bad_request(message));
        }
        let object = self.existing_resource(identifier)?;
        if object.tags.contains(tag) {
            return Err(Refusal::unprocessable("already tagged"));
        }
        let body = bodies::resource_in_short(object, true);
        let is_lost = request.in_flight.as_ref().is_some_and(|tagging| tagging.is_lost);
        if !is_lost {
            self.world.tag(identifier, tag);
            self.save()?;
        }
        Ok(body)
    }

    fn untag(&mut self, identifier: &str, tag: &str) -> Result<(), Refusal> {
        let object = self.existing_resource(identifier)?;
        if !object.tags.contains(tag) {
            return Err(Refusal::not_found());
        }
        self.world.untag(identifier, tag);
        self.save()
    }

    fn existing(&self, kind: Kind, identifier: &str) -> Result<&Object, Refusal> {
        self.world.get(kind, identifier).ok_or_else(Refusal::not_found)
    }

    fn existing_resource(&self, identifier: &str) -> Result<&Object, Refusal> {
        self.world.objects.get(identifier).ok_or_else(Refusal::not_found)
    }
}

/// Adds a configured load balancer, unless the state file holds it.
fn add_balancer(world: &mut World, identifier: &str) -> Result<(), String> {
    match world.objects.get(identifier).map(|object| object.kind) {
        Some(Kind::LoadBalancer) => {}
        Some(_) => {
            return Err(format!(
                "load_balancers: `{identifier}` is an object of another kind in the state file"
            ));
        }
        None => world.put(Object {
            kind: Kind::LoadBalancer,
            identifier: identifier.to_owned(),
            // The address is one for documentation (RFC 5737).
            fields: [("name", identifier), ("ip_address", "203.0.113.1")]
                .map(|(name, text)| (name.to_owned(), Value::from(text)))
                .into(),
            tags: Default::default(),
            state: StateId::Deployed,
            settles_at_ms: None,
        }),
    }
    Ok(())
}

/// The taggings in flight, and some that have ended.
#[derive(Default)]
struct Taggings(Vec<Weak<Tagging>>);

impl Taggings {
    /// Notes a tagging, which lasts as long as it is held. The first of those that overlap is not lost.
    fn begin(&mut self, resource: &str, lose_overlapping: bool) -> Arc<Tagging> {
        self.0.retain(|tagging| tagging.strong_count() > 0);
        let mut others = self.0.iter().filter_map(Weak::upgrade);
        let is_lost = lose_overlapping && others.any(|other| other.resource != resource && !other.is_lost);
        let resource = resource.to_owned();
        let tagging = Arc::new(Tagging { resource, is_lost });
        self.0.push(Arc::downgrade(&tagging));
        tagging
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_taggings_that_overlap_the_first_one_stays() {
        let mut taggings = Taggings::default();
        let first = taggings.begin("a", true);
        let second = taggings.begin("b", true);
        let same_resource = taggings.begin("a", true);
        let are_lost = [first, second, same_resource].map(|tagging| tagging.is_lost);
        assert_eq!(are_lost, [false, true, false]);

        let mut taggings = Taggings::default();
        drop(taggings.begin("a", true));
        let after = taggings.begin("b", true);
        assert!(!after.is_lost, "they do not overlap");
        assert!(!taggings.begin("c", false).is_lost, "losing is switched off");
    }
}
