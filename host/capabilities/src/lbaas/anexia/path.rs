//! The Engine's paths: where each resource is, and how identifiers and tags are encoded.

use crate::lbaas::{self, Kind, Spec, parent};
use crate::remote::{encode, segment};

/// The Engine's collections; the LBaaS kinds are in the order of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Collection {
    LoadBalancers,
    Backends,
    Frontends,
    Binds,
    Servers,
    /// Resources of every type, with their tags.
    Resources,
}

impl Collection {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::LoadBalancers => "/api/LBaaS/v1/loadbalancer.json",
            Self::Backends => "/api/LBaaS/v1/backend.json",
            Self::Frontends => "/api/LBaaS/v1/frontend.json",
            Self::Binds => "/api/LBaaS/v1/bind.json",
            Self::Servers => "/api/LBaaS/v1/server.json",
            Self::Resources => "/api/core/v1/resource.json",
        }
    }

    /// The path of one of its resources. `None` if the identifier can't be a path segment, so that no resource can have
    /// it.
    pub(super) fn item(self, identifier: &str) -> Option<String> {
        Some(format!("{}/{}", self.path(), segment(identifier)?))
    }
}

impl From<Kind> for Collection {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Backend => Self::Backends,
            Kind::Frontend => Self::Frontends,
            Kind::Bind => Self::Binds,
            Kind::Server => Self::Servers,
        }
    }
}

/// The `resource` label of a tagging's metrics: its path without identifier and tag.
pub(super) const TAGS_LABEL: &str = "/api/core/v1/resource.json/tags";

/// The path of one resource's tag; `None` if one of the two can't be a path segment.
pub(super) fn tag(identifier: &str, tag: &str) -> Option<String> {
    Some(format!(
        "{}/tags/{}",
        Collection::Resources.item(identifier)?,
        segment(tag)?
    ))
}

/// The query of a list by tag.
pub(super) fn tag_query(tag: &str) -> String {
    format!("tag_name={}", encode(tag))
}

/// A resource that owns others, as lists by parent name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parent {
    filter: &'static str,
    pub(super) identifier: String,
}

impl Parent {
    /// The parent of a resource of this kind, by the parent's identifier.
    pub(super) fn of_kind(kind: Kind, identifier: &str) -> Self {
        let filter = match kind {
            Kind::Backend | Kind::Frontend => "load_balancer",
            Kind::Bind => "frontend",
            Kind::Server => "backend",
        };
        Self {
            filter,
            identifier: identifier.to_owned(),
        }
    }

    /// The parent of a resource.
    pub(super) fn of(spec: &Spec) -> Self {
        let identifier = match parent(spec) {
            lbaas::Parent::LoadBalancer(identifier) => identifier,
            lbaas::Parent::Resource(resource) => resource.identifier,
        };
        Self::of_kind(spec.kind(), &identifier)
    }

    /// The query of a list of its children. The filter is a query string of its own, encoded once more.
    pub(super) fn query(&self) -> String {
        format!(
            "filters={}",
            encode(&format!("{}={}", self.filter, encode(&self.identifier)))
        )
    }
}
