//! `trueup:lbaas/api`: the Anexia Engine's LBaaS resources.

pub mod anexia;
mod binding;
mod owners;
pub mod planned;
pub(crate) mod reading;
pub mod simulated;

pub use crate::bindings::lbaas::api::Error;
pub use crate::bindings::lbaas::types::{Backend, Bind, Frontend, Kind, Mode, Object, ObjectRef, Server, Spec, State};
pub(crate) use owners::Owners;
pub use owners::{Parent, parent, referred};

use std::cmp::Ordering;

use crate::Answer;

/// An Engine, real or simulated. Methods have the names and promises of the WIT functions.
pub trait Api: Send + Sync {
    /// The state of a load balancer.
    fn load_balancer<'a>(&'a self, identifier: &'a str) -> Answer<'a, Result<State, Error>>;
    /// Objects that were created for the tag but do not carry it, left by a killed host. Changes nothing.
    fn leftovers<'a>(&'a self, _tag: &'a str) -> Answer<'a, Result<Vec<Object>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    /// Tags the [`Api::leftovers`], so that the next list shows them. Called before [`Api::list_tagged`] if the guest
    /// may write.
    fn adopt<'a>(&'a self, _tag: &'a str) -> Answer<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
    /// Every resource that carries the tag, by kind then identifier.
    fn list_tagged<'a>(&'a self, tag: &'a str) -> Answer<'a, Result<Vec<Object>, Error>>;
    /// Each resource, in the order of `refs`.
    fn get<'a>(&'a self, refs: &'a [ObjectRef]) -> Answer<'a, Vec<Result<Object, Error>>>;
    /// Creates and tags each, in the order of `specs`.
    fn create<'a>(&'a self, specs: &'a [Spec], tags: &'a [String]) -> Answer<'a, Vec<Result<Object, Error>>>;
    /// Makes the Engine apply each again, in the order of `refs`.
    fn reset<'a>(&'a self, refs: &'a [ObjectRef]) -> Answer<'a, Vec<Result<(), Error>>>;
    /// Destroys each, in the order of `refs`.
    fn destroy<'a>(&'a self, refs: &'a [ObjectRef]) -> Answer<'a, Vec<Result<(), Error>>>;
}

impl Kind {
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

/// By kind, in the order of the contract, then identifier.
impl Ord for ObjectRef {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.kind as u8, &self.identifier).cmp(&(other.kind as u8, &other.identifier))
    }
}

impl PartialOrd for ObjectRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

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
