//! `trueup:lbaas/api`: the Anexia Engine's LBaaS resources, and the load balancer that each belongs to.

pub mod anexia;
mod binding;
pub mod planned;
pub(crate) mod reading;
pub mod simulated;
#[cfg(test)]
pub(crate) mod testing;

pub use crate::bindings::lbaas::api::Error;
pub use crate::bindings::lbaas::types::{Backend, Bind, Frontend, Kind, Mode, Object, ObjectRef, Server, Spec, State};

use std::collections::BTreeMap;

use crate::bindings::order_by;
use async_trait::async_trait;

/// An Engine, real or simulated. Methods have the names and promises of the WIT functions.
#[async_trait]
pub trait Api: Send + Sync {
    /// The state of a load balancer.
    async fn load_balancer(&self, identifier: &str) -> Result<State, Error>;
    /// Objects that were created for the tag but do not carry it, left by a killed host. Changes nothing.
    async fn leftovers(&self, _tag: &str) -> Result<Vec<Object>, Error> {
        async { Ok(Vec::new()) }.await
    }
    /// Tags the [`Api::leftovers`], so that the next list shows them. Called before [`Api::list_tagged`] if the guest
    /// may write.
    async fn adopt(&self, _tag: &str) -> Result<(), Error> {
        async { Ok(()) }.await
    }
    /// Every resource that carries the tag, by kind then identifier.
    async fn list_tagged(&self, tag: &str) -> Result<Vec<Object>, Error>;
    /// Each resource, in the order of `refs`.
    async fn get(&self, refs: &[ObjectRef]) -> Vec<Result<Object, Error>>;
    /// Creates and tags each, in the order of `specs`.
    async fn create(&self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, Error>>;
    /// Makes the Engine apply each again, in the order of `refs`.
    async fn reset(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>>;
    /// Destroys each, in the order of `refs`.
    async fn destroy(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>>;
}

order_by!(Kind, it => *it as u8);

impl Kind {
    /// All kinds, in the order of the contract.
    pub const ALL: [Self; 4] = [Self::Backend, Self::Frontend, Self::Bind, Self::Server];

    /// The kind of the resources below one of this kind.
    pub fn child(self) -> Option<Self> {
        match self {
            Self::Backend => Some(Self::Server),
            Self::Frontend => Some(Self::Bind),
            Self::Bind | Self::Server => None,
        }
    }

    /// Its name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::Frontend => "frontend",
            Self::Bind => "bind",
            Self::Server => "server",
        }
    }
}

impl Eq for ObjectRef {}

// By kind, in the order of the contract, then identifier.
order_by!(ObjectRef, it => (it.kind, &it.identifier));

impl Object {
    /// Its kind and identifier.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef::new(self.spec.kind(), &self.identifier)
    }
}

impl ObjectRef {
    /// The reference to a resource of this kind.
    pub fn new(kind: Kind, identifier: &str) -> Self {
        Self {
            kind,
            identifier: identifier.to_owned(),
        }
    }
}

impl Spec {
    /// The kind of this resource.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Backend(_) => Kind::Backend,
            Self::Frontend(_) => Kind::Frontend,
            Self::Bind(_) => Kind::Bind,
            Self::Server(_) => Kind::Server,
        }
    }

    /// The resource's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Backend(backend) => &backend.name,
            Self::Frontend(frontend) => &frontend.name,
            Self::Bind(bind) => &bind.name,
            Self::Server(server) => &server.name,
        }
    }
}

/// Finds the load balancer that a resource belongs to: the scope of a grant. Keeps what the running call has seen: for
/// each resource its load balancer, or the parent that leads there. Reads other resources from the Engine. Keeps
/// nothing if everything is granted.
#[derive(Debug, Default)]
pub(crate) struct Owners(BTreeMap<ObjectRef, Parent>);

/// The owner of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parent {
    /// A load balancer, by its identifier; empty for a frontend without one.
    LoadBalancer(String),
    /// Another resource, which leads there.
    Resource(ObjectRef),
}

impl Owners {
    pub(crate) fn see(&mut self, object: &Object) {
        self.0.insert(object.reference(), parent(&object.spec));
    }

    /// The load balancer at the end of the chain of parents; empty if there is none (a frontend without one).
    ///
    /// # Errors
    /// The Engine's error if it had to be asked.
    pub(crate) async fn load_balancer(&mut self, from: Parent, api: &dyn Api) -> Result<String, Error> {
        let mut at = from;
        loop {
            let resource = match at {
                Parent::LoadBalancer(identifier) => return Ok(identifier),
                Parent::Resource(resource) => resource,
            };
            if let Some(parent) = self.0.get(&resource) {
                at = parent.clone();
                continue;
            }
            let mut answers = api.get(&[resource]).await;
            let object = answers.pop().unwrap_or(Err(Error::NotFound))?;
            self.see(&object);
            // Each parent has another kind, so the chain ends: bind, frontend, load balancer.
            at = parent(&object.spec);
        }
    }
}

/// Everything that a new resource would refer to: its owner, and for a frontend its backend.
pub fn referred(spec: &Spec) -> Vec<Parent> {
    let mut all = vec![parent(spec)];
    if let Spec::Frontend(frontend) = spec
        && !frontend.default_backend.is_empty()
    {
        let backend = ObjectRef::new(Kind::Backend, &frontend.default_backend);
        all.push(Parent::Resource(backend));
    }
    all
}

/// The owner of a resource with this specification.
pub fn parent(spec: &Spec) -> Parent {
    match spec {
        Spec::Backend(backend) => Parent::LoadBalancer(backend.load_balancer.clone()),
        Spec::Frontend(frontend) => Parent::LoadBalancer(frontend.load_balancer.clone()),
        Spec::Bind(bind) => Parent::Resource(ObjectRef::new(Kind::Frontend, &bind.frontend)),
        Spec::Server(server) => Parent::Resource(ObjectRef::new(Kind::Backend, &server.backend)),
    }
}
