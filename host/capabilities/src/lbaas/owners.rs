//! The load balancer that a resource belongs to: the scope of a grant.
//!
//! Remembers the resources that the running call has seen, and reads others from the Engine. Remembers nothing if
//! everything is granted.

use std::collections::BTreeMap;

use super::{Api, Error, Kind, Object, ObjectRef, Spec};

/// What the running call has seen: for each resource its load balancer, or the parent that leads there.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    parents: BTreeMap<ObjectRef, Parent>,
}

/// The owner of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parent {
    /// A load balancer, by its identifier; empty for a frontend without one.
    LoadBalancer(String),
    /// Another resource, which leads there.
    Resource(ObjectRef),
}

impl Parent {
    /// Its identifier.
    pub fn identifier(&self) -> &str {
        match self {
            Self::LoadBalancer(identifier) => identifier,
            Self::Resource(resource) => &resource.identifier,
        }
    }
}

impl Owners {
    pub(crate) fn see(&mut self, object: &Object) {
        self.parents.insert(object.reference(), parent(&object.spec));
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
            if let Some(parent) = self.parents.get(&resource) {
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
        all.push(Parent::Resource(ObjectRef::new(
            Kind::Backend,
            &frontend.default_backend,
        )));
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
