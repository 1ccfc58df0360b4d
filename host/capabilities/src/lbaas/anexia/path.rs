//! The Engine's paths and its names for the kinds of resources, and the query of a list by parent.

use crate::lbaas::{Kind, ObjectRef, Parent, Spec, parent};
use crate::remote::encode;

/// Where load balancers are.
pub(super) const LOAD_BALANCERS: &str = "/api/LBaaS/v1/loadbalancer.json";

/// Where resources of every type are, with their tags.
pub(super) const RESOURCES: &str = "/api/core/v1/resource.json";

/// The `resource` label of a tagging's metrics: its path without identifier and tag.
pub(super) const TAGS_LABEL: &str = "/api/core/v1/resource.json/tags";

/// What the Engine calls the resources of one kind.
pub(super) struct Names {
    /// Where they are listed and created.
    pub(super) path: &'static str,
    /// The identifier of their type.
    pub(super) resource_type: &'static str,
    /// The fields with values.
    pub(super) values: &'static [&'static str],
    /// The fields with the identifiers of other resources. The first is their parent; lists are filtered by it.
    pub(super) references: &'static [&'static str],
}

impl Kind {
    pub(super) const fn names(self) -> &'static Names {
        match self {
            Self::Backend => &Names {
                path: "/api/LBaaS/v1/backend.json",
                resource_type: "33164a3066a04a52be43c607f0c5dd8c",
                values: &["name", "mode", "health_check", "server_timeout"],
                references: &["load_balancer"],
            },
            Self::Frontend => &Names {
                path: "/api/LBaaS/v1/frontend.json",
                resource_type: "da9d14b9d95840c08213de67f9cee6e2",
                values: &["name", "mode", "client_timeout"],
                references: &["load_balancer", "default_backend"],
            },
            Self::Bind => &Names {
                path: "/api/LBaaS/v1/bind.json",
                resource_type: "bd24def982aa478fb3352cb5f49aab47",
                values: &["name", "address", "port", "ssl", "ssl_certificate_path"],
                references: &["frontend"],
            },
            Self::Server => &Names {
                path: "/api/LBaaS/v1/server.json",
                resource_type: "01f321a4875446409d7d8469503a905f",
                values: &["name", "ip", "port", "check"],
                references: &["backend"],
            },
        }
    }
}

/// The children of one kind below one parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Family {
    pub(super) kind: Kind,
    /// The parent's identifier.
    pub(super) parent: String,
}

impl Family {
    /// The family of a resource.
    pub(super) fn of(spec: &Spec) -> Self {
        let (Parent::LoadBalancer(parent) | Parent::Resource(ObjectRef { identifier: parent, .. })) = parent(spec);
        Self::below(spec.kind(), &parent)
    }

    pub(super) fn below(kind: Kind, parent: &str) -> Self {
        let parent = parent.to_owned();
        Self { kind, parent }
    }

    /// The query of its list. The filter is a query string of its own, encoded once more.
    pub(super) fn query(&self) -> String {
        let parent = self.kind.names().references.first().copied().unwrap_or_default();
        let filter = format!("{parent}={}", encode(&self.parent));
        format!("filters={}", encode(&filter))
    }
}
