//! The kinds of objects: their paths, resource types, fields and states. Only a table.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A kind of object, parents before children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    LoadBalancer,
    Backend,
    Frontend,
    Bind,
    Server,
}

/// A field of a kind's bodies.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// Whether a body without it is refused. A required text must not be empty.
    pub(super) required: bool,
}

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    /// `tcp` or `http`.
    Mode,
    /// 1 to 65535.
    Port,
    Flag,
    Number,
    /// An identifier in requests, `{"identifier", "name"}` in answers.
    Reference(Kind),
}

const LOAD_BALANCER: [Field; 2] = [required("name", Shape::Text), optional("ip_address", Shape::Text)];

const BACKEND: [Field; 5] = [
    required("name", Shape::Text),
    required("mode", Shape::Mode),
    required("load_balancer", Shape::Reference(Kind::LoadBalancer)),
    // Clients leave it out if it is empty.
    optional("health_check", Shape::Text),
    optional("server_timeout", Shape::Number),
];

const FRONTEND: [Field; 5] = [
    required("name", Shape::Text),
    required("mode", Shape::Mode),
    required("load_balancer", Shape::Reference(Kind::LoadBalancer)),
    optional("default_backend", Shape::Reference(Kind::Backend)),
    optional("client_timeout", Shape::Text),
];

const BIND: [Field; 6] = [
    required("name", Shape::Text),
    required("address", Shape::Text),
    required("port", Shape::Port),
    required("ssl", Shape::Flag),
    required("frontend", Shape::Reference(Kind::Frontend)),
    optional("ssl_certificate_path", Shape::Text),
];

const SERVER: [Field; 5] = [
    required("name", Shape::Text),
    required("ip", Shape::Text),
    required("port", Shape::Port),
    // Clients leave it out if it is empty.
    optional("check", Shape::Text),
    required("backend", Shape::Reference(Kind::Backend)),
];

const fn required(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: true,
    }
}

const fn optional(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: false,
    }
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::LoadBalancer,
        Self::Backend,
        Self::Frontend,
        Self::Bind,
        Self::Server,
    ];

    /// Where the kind's objects are listed and created; `/ID` after it is one of them.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::LoadBalancer => "/api/LBaaS/v1/loadbalancer.json",
            Self::Backend => "/api/LBaaS/v1/backend.json",
            Self::Frontend => "/api/LBaaS/v1/frontend.json",
            Self::Bind => "/api/LBaaS/v1/bind.json",
            Self::Server => "/api/LBaaS/v1/server.json",
        }
    }

    /// Identifier and name of the kind's resource type.
    pub(super) const fn resource_type(self) -> (&'static str, &'static str) {
        match self {
            // The simulation's own: clients find load balancers by path, and must tolerate a type that they don't know.
            Self::LoadBalancer => ("10adba1a00000000000000000000ce12", "LBaaS / LoadBalancer"),
            Self::Backend => ("33164a3066a04a52be43c607f0c5dd8c", "LBaaS / Backend"),
            Self::Frontend => ("da9d14b9d95840c08213de67f9cee6e2", "LBaaS / Frontend"),
            Self::Bind => ("bd24def982aa478fb3352cb5f49aab47", "LBaaS / Bind"),
            Self::Server => ("01f321a4875446409d7d8469503a905f", "LBaaS / Server"),
        }
    }

    /// The fields of requests and answers, besides those that every object has.
    pub(super) const fn fields(self) -> &'static [Field] {
        match self {
            Self::LoadBalancer => &LOAD_BALANCER,
            Self::Backend => &BACKEND,
            Self::Frontend => &FRONTEND,
            Self::Bind => &BIND,
            Self::Server => &SERVER,
        }
    }

    /// The fields that lists of the kind can be filtered by.
    pub(super) const fn filters(self) -> &'static [&'static str] {
        match self {
            Self::LoadBalancer => &[],
            Self::Backend | Self::Frontend => &["load_balancer", "mode"],
            Self::Bind => &["frontend"],
            Self::Server => &["backend"],
        }
    }
}

/// How far an object's configuration has been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StateId {
    /// Changed, and not yet applied.
    #[serde(rename = "0")]
    Updating,
    /// Changed, and applied.
    #[serde(rename = "1")]
    Updated,
    /// Could not be applied.
    #[serde(rename = "2")]
    DeploymentError,
    /// Applied.
    #[serde(rename = "3")]
    Deployed,
    /// Created, and not yet applied.
    #[serde(rename = "4")]
    NewlyCreated,
}

impl StateId {
    /// The state in answers.
    pub(super) fn wire(self) -> Value {
        let (id, text, kind) = match self {
            Self::Updating => ("0", "Updating", 1),
            Self::Updated => ("1", "Updated", 1),
            Self::DeploymentError => ("2", "DeploymentError", 0),
            Self::Deployed => ("3", "Deployed", 1),
            Self::NewlyCreated => ("4", "NewlyCreated", 2),
        };
        // Clients read the name as `text` or as `title`.
        json!({"id": id, "text": text, "title": text, "type": kind})
    }
}
