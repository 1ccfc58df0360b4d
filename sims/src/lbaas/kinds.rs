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

/// A field of a kind's bodies: its name, what it holds, and whether a body without it is refused. A required text must
/// not be empty.
pub(super) struct Field(pub(super) &'static str, pub(super) Shape, pub(super) bool);

const REQUIRED: bool = true;
const OPTIONAL: bool = false;

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

/// What the Engine says of a kind.
pub(super) struct About {
    /// Where the kind's objects are listed and created; `/ID` after it is one of them.
    pub(super) path: &'static str,
    /// Identifier and name of the kind's resource type.
    pub(super) resource_type: (&'static str, &'static str),
    /// The fields that lists of the kind can be filtered by.
    pub(super) filters: &'static [&'static str],
    /// The fields of requests and answers, besides those that every object has.
    pub(super) fields: &'static [Field],
}

const LOAD_BALANCER: About = About {
    path: "/api/LBaaS/v1/loadbalancer.json",
    // The simulation's own: clients find load balancers by path, and must tolerate a type that they don't know.
    resource_type: ("10adba1a00000000000000000000ce12", "LBaaS / LoadBalancer"),
    filters: &[],
    fields: &[
        Field("name", Shape::Text, REQUIRED),
        Field("ip_address", Shape::Text, OPTIONAL),
    ],
};

const BACKEND: About = About {
    path: "/api/LBaaS/v1/backend.json",
    resource_type: ("33164a3066a04a52be43c607f0c5dd8c", "LBaaS / Backend"),
    filters: &["load_balancer", "mode"],
    fields: &[
        Field("name", Shape::Text, REQUIRED),
        Field("mode", Shape::Mode, REQUIRED),
        Field("load_balancer", Shape::Reference(Kind::LoadBalancer), REQUIRED),
        // Clients leave it out if it is empty.
        Field("health_check", Shape::Text, OPTIONAL),
        Field("server_timeout", Shape::Number, OPTIONAL),
    ],
};

const FRONTEND: About = About {
    path: "/api/LBaaS/v1/frontend.json",
    resource_type: ("da9d14b9d95840c08213de67f9cee6e2", "LBaaS / Frontend"),
    filters: &["load_balancer", "mode"],
    fields: &[
        Field("name", Shape::Text, REQUIRED),
        Field("mode", Shape::Mode, REQUIRED),
        Field("load_balancer", Shape::Reference(Kind::LoadBalancer), REQUIRED),
        Field("default_backend", Shape::Reference(Kind::Backend), OPTIONAL),
        Field("client_timeout", Shape::Text, OPTIONAL),
    ],
};

const BIND: About = About {
    path: "/api/LBaaS/v1/bind.json",
    resource_type: ("bd24def982aa478fb3352cb5f49aab47", "LBaaS / Bind"),
    filters: &["frontend"],
    fields: &[
        Field("name", Shape::Text, REQUIRED),
        Field("address", Shape::Text, REQUIRED),
        Field("port", Shape::Port, REQUIRED),
        Field("ssl", Shape::Flag, REQUIRED),
        Field("frontend", Shape::Reference(Kind::Frontend), REQUIRED),
        Field("ssl_certificate_path", Shape::Text, OPTIONAL),
    ],
};

const SERVER: About = About {
    path: "/api/LBaaS/v1/server.json",
    resource_type: ("01f321a4875446409d7d8469503a905f", "LBaaS / Server"),
    filters: &["backend"],
    fields: &[
        Field("name", Shape::Text, REQUIRED),
        Field("ip", Shape::Text, REQUIRED),
        Field("port", Shape::Port, REQUIRED),
        // Clients leave it out if it is empty.
        Field("check", Shape::Text, OPTIONAL),
        Field("backend", Shape::Reference(Kind::Backend), REQUIRED),
    ],
};

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::LoadBalancer,
        Self::Backend,
        Self::Frontend,
        Self::Bind,
        Self::Server,
    ];

    pub(super) const fn about(self) -> &'static About {
        match self {
            Self::LoadBalancer => &LOAD_BALANCER,
            Self::Backend => &BACKEND,
            Self::Frontend => &FRONTEND,
            Self::Bind => &BIND,
            Self::Server => &SERVER,
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
