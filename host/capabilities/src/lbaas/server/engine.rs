//! Carries out requests: computes effects and an answer from the state and the request.
//!
//! Takes time as an argument, HTTP as methods, paths and bodies, and knows no network. The door (`door.rs`) handles the
//! rest between a client and this: token, rate limit, latency, most faults.
//!
//! ```text
//! request -> settle what is due -> check -> effects -> state file -> world -> answer
//! ```

use axum::http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::Value;

use super::{
    ServerConfig, StartError,
    bodies::{self, Purpose},
    faults::Faults,
    kinds::{Kind, StateId},
    lists::Listing,
    refusal::Refusal,
    state_file::{self, StateFile},
    target::Target,
    world::{Dump, Effect, Object, World},
};

/// An admitted request.
pub(super) struct Call<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
    /// `None` if the path names nothing.
    pub(super) target: Option<&'a Target>,
    /// Whether this is a tagging whose answer claims success but that has no effect.
    pub(super) is_lost: bool,
}

/// A request that was carried out.
#[derive(Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// `None` if there is no body.
    pub(super) body: Option<Value>,
}

impl Reply {
    fn ok(body: Value) -> Self {
        Self {
            status: StatusCode::OK,
            body: Some(body),
        }
    }
}

/// A simulated Engine without its network.
pub(super) struct Engine {
    world: World,
    store: Option<StateFile>,
    pub(super) faults: Faults,
    settle_ms: u64,
    resource_type_in_lists: bool,
}

impl Engine {
    /// Begins with the content of the state file, and the configured load balancers that are not in it.
    pub(super) fn new(config: &ServerConfig) -> Result<Self, StartError> {
        let path = config.state_file.as_deref();
        let stored = path
            .map(|path| state_file::load(path, config.seed))
            .transpose()?
            .flatten();
        let mut world = stored.unwrap_or_else(|| World::new(config.seed));
        for balancer in &config.load_balancers {
            match world.resource(&balancer.identifier).map(|object| object.kind) {
                Some(Kind::LoadBalancer) => {}
                Some(_) => {
                    let identifier = &balancer.identifier;
                    let reason =
                        format!("load_balancers: `{identifier}` is an object of another kind in the state file");
                    return Err(StartError::Config(reason));
                }
                None => {
                    let fields = [("name", &balancer.name), ("ip_address", &balancer.ip_address)];
                    let object = Object {
                        kind: Kind::LoadBalancer,
                        identifier: balancer.identifier.clone(),
                        fields: fields
                            .map(|(name, text)| (name.to_owned(), Value::from(text.as_str())))
                            .into(),
                        tags: Default::default(),
                        state: balancer.state,
                        settles_at_ms: None,
                    };
                    let identifiers_drawn = world.identifiers_drawn();
                    world
                        .apply(Effect::Put {
                            object,
                            identifiers_drawn,
                        })
                        .map_err(StartError::Config)?;
                }
            }
        }
        let store = path.map(|path| StateFile::create(path, &world)).transpose()?;
        Ok(Self {
            world,
            store,
            faults: Faults::new(config.faults.clone()),
            settle_ms: config.settle_ms,
            resource_type_in_lists: config.resource_type_in_lists,
        })
    }

    /// Carries out one request.
    pub(super) fn answer(&mut self, now_ms: u64, call: &Call<'_>) -> Result<Reply, Refusal> {
        self.settle(now_ms)?;
        let target = call.target.ok_or_else(Refusal::not_found)?;
        match (call.method, target) {
            (&Method::GET, Target::Collection(kind)) => self.list(*kind, call.uri),
            (&Method::POST, Target::Collection(kind)) if *kind != Kind::LoadBalancer => {
                self.create(now_ms, *kind, call)
            }
            (&Method::GET, Target::Object(kind, identifier)) => {
                let object = self.existing(*kind, identifier)?;
                Ok(Reply::ok(bodies::object_in_full(object, &self.world)))
            }
            (&Method::PUT, Target::Object(kind, identifier)) if *kind != Kind::LoadBalancer => {
                self.update(now_ms, *kind, identifier, call)
            }
            (&Method::DELETE, Target::Object(kind, identifier)) if *kind != Kind::LoadBalancer => {
                self.destroy(*kind, identifier)
            }
            (&Method::GET, Target::Resources) => self.list_resources(call.uri),
            (&Method::GET, Target::Resource(identifier)) => {
                let object = self.existing_resource(identifier)?;
                Ok(Reply::ok(bodies::resource_in_full(object, &self.world)))
            }
            (&Method::POST, Target::Tag { resource, tag }) => self.tag(resource, tag, call),
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

    /// The whole state.
    pub(super) fn dump(&mut self, now_ms: u64) -> Result<Dump, Refusal> {
        self.settle(now_ms)?;
        Ok(self.world.dump())
    }

    /// Replaces the whole state.
    pub(super) fn load(&mut self, dump: Dump) -> Result<(), Refusal> {
        let world = World::from_dump(self.world.seed(), dump).map_err(Refusal::unprocessable)?;
        if let Some(store) = &mut self.store {
            *store = StateFile::create(store.path(), &world).map_err(not_stored)?;
        }
        self.world = world;
        Ok(())
    }

    /// Makes the objects ready whose time has come, or failed if a fault says so.
    pub(super) fn settle(&mut self, now_ms: u64) -> Result<(), Refusal> {
        let faults = &mut self.faults;
        let settled = self.world.due(now_ms).map(|object| {
            let method = if object.state == StateId::NewlyCreated {
                "POST"
            } else {
                "PUT"
            };
            let fails = faults.fails(method, &object.path());
            let state = if fails {
                StateId::DeploymentError
            } else {
                StateId::Deployed
            };
            Effect::Settled {
                identifier: object.identifier.clone(),
                state,
            }
        });
        let settled = settled.collect();
        self.record(settled)
    }

    fn list(&self, kind: Kind, uri: &Uri) -> Result<Reply, Refusal> {
        let listing = Listing::of_kind(uri, kind.filters())?;
        let fits = |object: &&Object| {
            let holds = |(name, value): (&String, &String)| {
                object.fields.get(name).and_then(Value::as_str) == Some(value.as_str())
            };
            object.kind == kind && listing.filters.iter().all(holds)
        };
        let objects: Vec<&Object> = self.world.resources().filter(fits).collect();
        Ok(Reply::ok(
            listing.page_of(&objects, |object| bodies::object_in_short(object)),
        ))
    }

    fn list_resources(&self, uri: &Uri) -> Result<Reply, Refusal> {
        let listing = Listing::of_resources(uri)?;
        let tag = listing.tag_name.as_deref();
        if tag.is_some_and(|tag| self.world.tag_identifier(tag).is_none()) {
            return Err(Refusal::unprocessable("unknown tag"));
        }
        let objects: Vec<&Object> = match tag {
            Some(tag) => self.world.tagged(tag).collect(),
            None => self.world.resources().collect(),
        };
        let with_type = self.resource_type_in_lists;
        Ok(Reply::ok(listing.page_of(&objects, |object| {
            bodies::resource_in_short(object, with_type)
        })))
    }

    fn create(&mut self, now_ms: u64, kind: Kind, call: &Call<'_>) -> Result<Reply, Refusal> {
        let body = bodies::parse_json(call.headers, call.body)?;
        let fields = bodies::parse_fields(kind, Purpose::Create, body, &self.world)?;
        let object = Object {
            kind,
            identifier: self.world.draw_identifier(),
            fields,
            tags: Default::default(),
            state: StateId::NewlyCreated,
            settles_at_ms: Some(now_ms.saturating_add(self.settle_ms)),
        };
        let body = self.put(now_ms, object)?;
        Ok(Reply {
            status: StatusCode::CREATED,
            body: Some(body),
        })
    }

    fn update(&mut self, now_ms: u64, kind: Kind, identifier: &str, call: &Call<'_>) -> Result<Reply, Refusal> {
        let existing = self.existing(kind, identifier)?;
        let body = bodies::parse_json(call.headers, call.body)?;
        let fields = bodies::parse_fields(kind, Purpose::Update { identifier }, body, &self.world)?;
        let object = Object {
            fields,
            state: StateId::Updating,
            settles_at_ms: Some(now_ms.saturating_add(self.settle_ms)),
            ..existing.clone()
        };
        self.put(now_ms, object).map(Reply::ok)
    }

    /// Stores the object, settles it if that takes no time, and returns its JSON.
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

    fn destroy(&mut self, kind: Kind, identifier: &str) -> Result<Reply, Refusal> {
        let object = self.existing(kind, identifier)?;
        if self.world.is_referred_to(object) {
            return Err(Refusal::new(StatusCode::CONFLICT, "in use"));
        }
        let body = bodies::object_in_full(object, &self.world);
        self.record(vec![Effect::Destroyed {
            identifier: identifier.to_owned(),
        }])?;
        Ok(Reply::ok(body))
    }

    fn tag(&mut self, identifier: &str, tag: &str, call: &Call<'_>) -> Result<Reply, Refusal> {
        let body = bodies::parse_json(call.headers, call.body)?;
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
        if !call.is_lost {
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
        Ok(Reply::ok(body))
    }

    fn untag(&mut self, identifier: &str, tag: &str) -> Result<Reply, Refusal> {
        let object = self.existing_resource(identifier)?;
        if !object.tags.contains(tag) {
            return Err(Refusal::not_found());
        }
        self.record(vec![Effect::Untagged {
            identifier: identifier.to_owned(),
            tag: tag.to_owned(),
        }])?;
        Ok(Reply {
            status: StatusCode::NO_CONTENT,
            body: None,
        })
    }

    fn existing(&self, kind: Kind, identifier: &str) -> Result<&Object, Refusal> {
        self.world.get(kind, identifier).ok_or_else(Refusal::not_found)
    }

    fn existing_resource(&self, identifier: &str) -> Result<&Object, Refusal> {
        self.world.resource(identifier).ok_or_else(Refusal::not_found)
    }

    /// Applies the effects, first to the state file: an effect that can't be saved is not acknowledged.
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

fn not_stored(error: state_file::StateFileError) -> Refusal {
    tracing::error!(target: super::LOG_TARGET, error = &error as &dyn std::error::Error, "an effect was not stored");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}
