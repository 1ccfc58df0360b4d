//! Carries out requests: turns the state and a request into effects and an answer.
//!
//! Time is an argument. Knows HTTP as methods, paths and bodies, and no network: `base` handles token, rate limit,
//! latency and most faults.
//!
//! ```text
//! request -> settle what is due -> check -> effects -> state file -> world -> answer
//! ```

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::{
    EngineFaultText, LoadBalancer, ServerConfig, bodies,
    kinds::{Kind, StateId},
    lists::Listing,
    refusal::Refusal,
    state_file::{self, StateFile},
    target::Target,
    world::{Effect, Object, World},
};
use crate::base::{faults::Faults, server::Problem, service::Request, state_file::StateFileError};

/// A simulated Engine without its network.
pub(super) struct Engine {
    pub(super) world: World,
    pub(super) store: Option<StateFile>,
    pub(super) faults: Faults<EngineFaultText>,
    pub(super) config: ServerConfig,
}

impl Engine {
    /// Starts with the state file's world, and adds the configured load balancers that are not in it.
    pub(super) fn new(config: ServerConfig) -> Result<Self, Problem> {
        config.check().map_err(Problem::Config)?;
        let path = config.state_file.as_deref();
        let stored = path.map(|path| state_file::load(path, config.seed)).transpose()?;
        let mut world = stored.flatten().unwrap_or_else(|| World::new(config.seed));
        for balancer in &config.load_balancers {
            add_balancer(&mut world, balancer).map_err(Problem::Config)?;
        }
        let path = path.filter(|_| !config.is_trial);
        let store = path.map(|path| StateFile::create(path, &world)).transpose()?;
        Ok(Self {
            world,
            store,
            faults: Faults::new(config.faults.clone()),
            config,
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
            (method, target) => {
                let message = format!("`{method}` is no method of this path");
                Err(Refusal {
                    allow: target.methods(),
                    ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message)
                })
            }
        }
    }

    /// Settles the objects that are due: each is deployed, or fails if a fault says so.
    pub(super) fn settle(&mut self, now_ms: u64) -> Result<(), Refusal> {
        let faults = &mut self.faults;
        let settled = self.world.due(now_ms).map(|object| {
            let is_new = object.state == StateId::NewlyCreated;
            let method = if is_new { "POST" } else { "PUT" };
            let state = match faults.for_later(method, &object.path()) {
                Some(_) => StateId::DeploymentError,
                None => StateId::Deployed,
            };
            Effect::Settled {
                identifier: object.identifier.clone(),
                state,
            }
        });
        let settled = settled.collect();
        self.record(settled)
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
        let identifiers_drawn = self.world.identifiers_drawn();
        self.record(vec![Effect::Put {
            object,
            identifiers_drawn,
        }])?;
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
        self.record(vec![Effect::Destroyed {
            identifier: identifier.to_owned(),
        }])?;
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
            let tag_identifier = match self.world.tag_identifier(tag) {
                Some(tag_identifier) => tag_identifier.to_owned(),
                None => self.world.draw_identifier(),
            };
            self.record(vec![Effect::Tagged {
                identifier: identifier.to_owned(),
                tag: tag.to_owned(),
                tag_identifier,
                identifiers_drawn: self.world.identifiers_drawn(),
            }])?;
        }
        Ok(ok(body))
    }

    fn untag(&mut self, identifier: &str, tag: &str) -> Result<Response, Refusal> {
        let object = self.existing_resource(identifier)?;
        if !object.tags.contains(tag) {
            return Err(Refusal::not_found());
        }
        self.record(vec![Effect::Untagged {
            identifier: identifier.to_owned(),
            tag: tag.to_owned(),
        }])?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    fn existing(&self, kind: Kind, identifier: &str) -> Result<&Object, Refusal> {
        self.world.get(kind, identifier).ok_or_else(Refusal::not_found)
    }

    fn existing_resource(&self, identifier: &str) -> Result<&Object, Refusal> {
        self.world.resource(identifier).ok_or_else(Refusal::not_found)
    }

    /// Applies the effects, to the state file first: an effect that can't be kept is not acknowledged.
    fn record(&mut self, effects: Vec<Effect>) -> Result<(), Refusal> {
        if effects.is_empty() {
            return Ok(());
        }
        if let Some(store) = &mut self.store {
            store.append(&effects).map_err(not_stored)?;
        }
        for effect in effects {
            self.world
                .apply(effect)
                .map_err(|reason| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, reason))?;
        }
        if let Some(Err(error)) = self.store.as_mut().map(|store| store.compact(&self.world)) {
            tracing::warn!(target: super::LOG_TARGET, error = &error as &dyn std::error::Error, "not made smaller");
        }
        Ok(())
    }
}

fn ok(body: Value) -> Response {
    Json(body).into_response()
}

pub(super) fn not_stored(error: StateFileError) -> Refusal {
    tracing::error!(target: super::LOG_TARGET, error = &error as &dyn std::error::Error, "an effect was not stored");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// Adds a configured load balancer, unless the state file holds it.
fn add_balancer(world: &mut World, balancer: &LoadBalancer) -> Result<(), String> {
    let identifier = &balancer.identifier;
    match world.resource(identifier).map(|object| object.kind) {
        Some(Kind::LoadBalancer) => return Ok(()),
        Some(_) => {
            return Err(format!(
                "load_balancers: `{identifier}` is an object of another kind in the state file"
            ));
        }
        None => {}
    }
    let fields = [("name", &balancer.name), ("ip_address", &balancer.ip_address)];
    let fields = fields.map(|(name, text)| (name.to_owned(), Value::from(text.as_str())));
    let object = Object {
        kind: Kind::LoadBalancer,
        identifier: identifier.clone(),
        fields: fields.into(),
        tags: Default::default(),
        state: balancer.state,
        settles_at_ms: None,
    };
    let identifiers_drawn = world.identifiers_drawn();
    world.apply(Effect::Put {
        object,
        identifiers_drawn,
    })
}
