//! Carries out requests: turns the state and a request into effects and an answer.
//!
//! Time is an argument. Knows HTTP as methods, paths and bodies, and no network: `base` handles token, rate limit,
//! latency and most faults.
//!
//! ```text
//! request -> settle what is due -> check -> world -> state file -> answer
//! ```

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::{
    ServerConfig, bodies,
    kinds::{Kind, StateId},
    lists::Listing,
    refusal::Refusal,
    taggings::Taggings,
    target::Target,
    world::{Dump, Object, World},
};
use crate::base::LOG_TARGET;
use crate::base::faults::Faults;
use crate::base::server::Problem;
use crate::base::service::Request;
use crate::base::state_file;

/// A simulated Engine without its network.
pub(super) struct Engine {
    pub(super) world: World,
    pub(super) faults: Faults,
    pub(super) config: ServerConfig,
    pub(super) taggings: Taggings,
}

impl Engine {
    /// Starts with the state file's world, and adds the configured load balancers that are not in it.
    pub(super) fn new(mut config: ServerConfig) -> Result<Self, Problem> {
        config.check().map_err(Problem::Config)?;
        let mut world = World::new(config.seed);
        if let Some(path) = &config.state_file
            && let Some(dump) = state_file::load::<Dump>(path)?
        {
            world = World::from_dump(config.seed, dump);
        }
        for identifier in &config.load_balancers {
            add_balancer(&mut world, identifier).map_err(Problem::Config)?;
        }
        if config.is_trial {
            config.state_file = None;
        }
        if let Some(path) = &config.state_file {
            // Finds out now whether the file can be written, rather than at the first request.
            state_file::save(path, world.dump())?;
        }
        Ok(Self {
            world,
            faults: Faults::new(config.faults.clone()),
            config,
            taggings: Taggings::default(),
        })
    }

    /// Carries out one request.
    pub(super) fn answer(&mut self, now_ms: u64, request: &Request<'_, Self>) -> Result<Response, Refusal> {
        self.settle(now_ms)?;
        let target = request.target.ok_or_else(Refusal::not_found)?;
        match (&request.parts.method, target) {
            (&Method::GET, Target::Collection(kind)) => self.list(*kind, &request.parts.uri),
            (&Method::POST, Target::Collection(kind)) if *kind != Kind::LoadBalancer => {
                self.create(now_ms, *kind, request)
            }
            (&Method::GET, Target::Object(kind, identifier)) => {
                let object = self.existing(*kind, identifier)?;
                Ok(ok(bodies::object_in_full(object, &self.world)))
            }
            (&Method::PUT, Target::Object(kind, identifier)) if *kind != Kind::LoadBalancer => {
                self.update(now_ms, *kind, identifier, request)
            }
            (&Method::DELETE, Target::Object(kind, identifier)) if *kind != Kind::LoadBalancer => {
                self.destroy(*kind, identifier)
            }
            (&Method::GET, Target::Resources) => self.list_resources(&request.parts.uri),
            (&Method::GET, Target::Resource(identifier)) => {
                let object = self.existing_resource(identifier)?;
                Ok(ok(bodies::resource_in_full(object, &self.world)))
            }
            (&Method::POST, Target::Tag { resource, tag }) => self.tag(resource, tag, request),
            (&Method::DELETE, Target::Tag { resource, tag }) => self.untag(resource, tag),
            (method, _) => {
                let message = format!("`{method}` is no method of this path");
                Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message))
            }
        }
    }

    /// Settles the objects that are due: each is deployed, or fails if a fault says so.
    pub(super) fn settle(&mut self, now_ms: u64) -> Result<(), Refusal> {
        let due: Vec<Object> = self.world.due(now_ms).cloned().collect();
        if due.is_empty() {
            return Ok(());
        }
        for object in due {
            let is_new = object.state == StateId::NewlyCreated;
            let method = if is_new { "POST" } else { "PUT" };
            let state = match self.faults.for_later(method, &object.path()) {
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

    fn list(&self, kind: Kind, uri: &Uri) -> Result<Response, Refusal> {
        let listing = Listing::of_kind(uri, kind.filters())?;
        let fits = |object: &&Object| {
            let holds = |(name, value): (&String, &String)| {
                object.fields.get(name).and_then(Value::as_str) == Some(value.as_str())
            };
            object.kind == kind && listing.filters.iter().all(holds)
        };
        let objects: Vec<&Object> = self.world.resources().filter(fits).collect();
        Ok(ok(listing.page_of(&objects, |object| bodies::object_in_short(object))))
    }

    fn list_resources(&self, uri: &Uri) -> Result<Response, Refusal> {
        let listing = Listing::of_resources(uri)?;
        let tag = listing.tag_name.as_deref();
        if tag.is_some_and(|tag| self.world.tag_identifier(tag).is_none()) {
            return Err(Refusal::unprocessable("unknown tag"));
        }
        let objects: Vec<&Object> = match tag {
            Some(tag) => self.world.tagged(tag).collect(),
            None => self.world.resources().collect(),
        };
        let with_type = self.config.resource_type_in_lists;
        Ok(ok(listing.page_of(&objects, |object| {
            bodies::resource_in_short(object, with_type)
        })))
    }

    fn create(&mut self, now_ms: u64, kind: Kind, request: &Request<'_, Self>) -> Result<Response, Refusal> {
        let body = bodies::parse_json(&request.parts.headers, request.body)?;
        let fields = bodies::parse_fields(kind, None, body, &self.world)?;
        let object = Object {
            kind,
            identifier: self.world.draw_identifier(),
            fields,
            tags: Default::default(),
            state: StateId::NewlyCreated,
            settles_at_ms: Some(now_ms.saturating_add(self.config.settle_ms)),
        };
        let body = self.put(now_ms, object)?;
        Ok((StatusCode::CREATED, Json(body)).into_response())
    }

    fn update(
        &mut self,
        now_ms: u64,
        kind: Kind,
        identifier: &str,
        request: &Request<'_, Self>,
    ) -> Result<Response, Refusal> {
        let existing = self.existing(kind, identifier)?;
        let body = bodies::parse_json(&request.parts.headers, request.body)?;
        let fields = bodies::parse_fields(kind, Some(identifier), body, &self.world)?;
        let object = Object {
            fields,
            state: StateId::Updating,
            settles_at_ms: Some(now_ms.saturating_add(self.config.settle_ms)),
            ..existing.clone()
        };
        self.put(now_ms, object).map(ok)
    }

    /// Stores the object, settles it if that takes no time, and shows it.
    fn put(&mut self, now_ms: u64, object: Object) -> Result<Value, Refusal> {
        let (kind, identifier) = (object.kind, object.identifier.clone());
        self.world.put(object);
        self.save()?;
        self.settle(now_ms)?;
        let object = self.existing(kind, &identifier)?;
        Ok(bodies::object_in_full(object, &self.world))
    }

    fn destroy(&mut self, kind: Kind, identifier: &str) -> Result<Response, Refusal> {
        let object = self.existing(kind, identifier)?;
        if self.world.is_referred_to(object) {
            return Err(Refusal::new(StatusCode::CONFLICT, "in use"));
        }
        let body = bodies::object_in_full(object, &self.world);
        self.world.destroy(identifier);
        self.save()?;
        Ok(ok(body))
    }

    fn tag(&mut self, identifier: &str, tag: &str, request: &Request<'_, Self>) -> Result<Response, Refusal> {
        let body = bodies::parse_json(&request.parts.headers, request.body)?;
        if !body.is_string() {
            return Err(Refusal::bad_request(
                "the body of a tagging must be text, and may be empty text",
            ));
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
        Ok(ok(body))
    }

    fn untag(&mut self, identifier: &str, tag: &str) -> Result<Response, Refusal> {
        let object = self.existing_resource(identifier)?;
        if !object.tags.contains(tag) {
            return Err(Refusal::not_found());
        }
        self.world.untag(identifier, tag);
        self.save()?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    fn existing(&self, kind: Kind, identifier: &str) -> Result<&Object, Refusal> {
        self.world.get(kind, identifier).ok_or_else(Refusal::not_found)
    }

    fn existing_resource(&self, identifier: &str) -> Result<&Object, Refusal> {
        self.world.resource(identifier).ok_or_else(Refusal::not_found)
    }

    /// Writes the world to the state file. An effect that can't be kept is not acknowledged: the client gets an error,
    /// although the server has the effect until it ends.
    pub(super) fn save(&self) -> Result<(), Refusal> {
        let Some(path) = &self.config.state_file else {
            return Ok(());
        };
        state_file::save(path, self.world.dump()).map_err(|error| {
            tracing::error!(target: LOG_TARGET, error = &error as &dyn std::error::Error, "the state was not kept");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        })
    }
}

fn ok(body: Value) -> Response {
    Json(body).into_response()
}

/// Adds a configured load balancer, unless the state file holds it.
fn add_balancer(world: &mut World, identifier: &str) -> Result<(), String> {
    match world.resource(identifier).map(|object| object.kind) {
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
