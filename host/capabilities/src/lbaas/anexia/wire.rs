//! The Engine's JSON: requests and answers as the types of the contract. Its paths and its names for the kinds of
//! resources, and the query of a list by parent.
//!
//! Pure: the same body gives the same result. Knows no HTTP beyond a status code.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::lbaas::{Bind, Kind, Mode, Object, ObjectRef, Parent, Server, Spec, State, parent};
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
        format!("filters={}", encode(&format!("{parent}={}", encode(&self.parent))))
    }
}

/// The state that asks the Engine to apply a resource again.
const STATE_UPDATING: &str = "0";

/// The body of a creation: the contract names the fields as the Engine does.
pub(super) fn creation(spec: &Spec) -> Value {
    let (mut body, more) = match spec {
        Spec::Backend(backend) => (json!(backend), Some(("mode", json!(mode_text(backend.mode))))),
        Spec::Frontend(frontend) => (json!(frontend), Some(("mode", json!(mode_text(frontend.mode))))),
        Spec::Bind(bind) => (json!(bind), Some(("ssl", json!(false)))),
        Spec::Server(server) => (json!(server), None),
    };
    if let Some(fields) = body.as_object_mut() {
        fields.extend(more.map(|(field, value)| (field.to_owned(), value)));
        leave_out_empty_checks(fields);
    }
    body
}

/// The body that makes the Engine apply a resource again, with unchanged fields.
pub(super) fn reset(kind: Kind, identifier: &str, existing: &Value) -> Value {
    let mut body = present(kind, existing);
    // A reference that can't be read is not sent back.
    body.retain(|field, value| !kind.names().references.contains(&field.as_str()) || value.is_string());
    if kind == Kind::Bind {
        // Required, so it is present even if the answer lacks it.
        body.entry("ssl").or_insert(Value::Bool(false));
    }
    body.insert("identifier".to_owned(), Value::from(identifier));
    body.insert("state".to_owned(), Value::from(STATE_UPDATING));
    leave_out_empty_checks(&mut body);
    Value::Object(body)
}

/// The fields that an answer has, with references as identifiers.
fn present(kind: Kind, answer: &Value) -> Map<String, Value> {
    let field = |name: &&str| Some(((*name).to_owned(), answer.get(*name).filter(|value| !value.is_null())?));
    let values = kind.names().values.iter().filter_map(field);
    let values = values.map(|(name, value)| (name, value.clone()));
    let references = kind.names().references.iter().filter_map(field);
    let references = references.filter_map(|(name, value)| match reference_identifier(value) {
        Some("") => None,
        Some(referred) => Some((name, Value::from(referred))),
        None => Some((name, value.clone())),
    });
    values.chain(references).collect()
}

fn leave_out_empty_checks(fields: &mut Map<String, Value>) {
    fields.retain(|field, value| value != "" || !["health_check", "check"].contains(&field.as_str()));
}

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Tcp => "tcp",
        Mode::Http => "http",
    }
}

/// A resource from an answer; an error text names resource and field.
pub(super) fn object(kind: Kind, answer: &Value) -> Result<Object, String> {
    let identifier = identifier(answer).ok_or_else(|| format!("{}: the answer holds no `identifier`", kind.name()))?;
    let names = kind.names();
    // Where a text is empty, or a reference leads nowhere, an answer has null or nothing.
    let texts = names.values.iter().chain(names.references);
    let texts = texts.filter(|field| !["mode", "port"].contains(field));
    let mut fields: Map<String, Value> = texts.map(|field| ((*field).to_owned(), Value::from(""))).collect();
    fields.extend(present(kind, answer));
    if let Some(text) = fields.get_mut("mode") {
        let mut modes = [Mode::Tcp, Mode::Http].into_iter();
        let mode = modes.find(|mode| *text == mode_text(*mode));
        let kind = kind.name();
        *text = json!(mode.ok_or_else(|| format!("{kind} `{identifier}`: mode: was {text}, must be `tcp` or `http`"))?);
    }
    let spec = match kind {
        Kind::Backend => read(fields).map(Spec::Backend),
        Kind::Frontend => read(fields).map(Spec::Frontend),
        Kind::Bind => read(fields).map(Spec::Bind),
        Kind::Server => read(fields).map(Spec::Server),
    };
    Ok(Object {
        identifier: identifier.to_owned(),
        state: state(answer.get("state")),
        spec: spec.map_err(|problem| format!("{} `{identifier}`: {problem}", kind.name()))?,
    })
}

fn read<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, String> {
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| error.to_string())
}

/// The identifier in an answer.
pub(super) fn identifier(answer: &Value) -> Option<&str> {
    let identifier = answer.get("identifier")?.as_str()?;
    (!identifier.is_empty()).then_some(identifier)
}

/// The target of a reference: an object with an identifier in answers, bare text in requests (and in some echoes of
/// them).
fn reference_identifier(reference: &Value) -> Option<&str> {
    match reference {
        Value::String(identifier) => Some(identifier),
        Value::Object(fields) => match fields.get("identifier") {
            None | Some(Value::Null) => Some(""),
            Some(identifier) => identifier.as_str(),
        },
        _ => None,
    }
}

/// The state by its id, or by its type if the id is unknown. A text is the id. If it is missing, the Engine has not yet
/// processed the resource.
pub(super) fn state(state: Option<&Value>) -> State {
    let (id, kind) = match state {
        None | Some(Value::Null) => return State::Pending,
        Some(Value::Object(fields)) => (fields.get("id"), fields.get("type")),
        Some(id) => (Some(id), None),
    };
    // Both occur as numbers and as text.
    let text = |value: &Value| value.to_string().trim_matches('"').to_owned();
    match id.map(text).as_deref() {
        Some("0") => State::Updating,
        Some("1" | "3") => State::Ok,
        Some("2") => State::Failed,
        Some("4") => State::Pending,
        _ => match kind.map(text).as_deref() {
            Some("1") => State::Ok,
            Some("2") => State::Pending,
            _ => State::Failed,
        },
    }
}

/// One entry of a list: enough to read the resource in full.
pub(super) struct Entry {
    pub(super) identifier: String,
    pub(super) name: String,
    /// As [`resource_type`].
    pub(super) resource_type: Option<(Option<Kind>, String)>,
}

/// The type of a resource in an answer, among all that the Engine knows: the kind of LBaaS resource, if it is one, and
/// its name.
pub(super) fn resource_type(answer: &Value) -> Option<(Option<Kind>, String)> {
    let resource_type = answer.get("resource_type")?;
    let identifier = identifier(resource_type)?;
    let is_it = |kind: &Kind| kind.names().resource_type == identifier;
    Some((Kind::ALL.into_iter().find(is_it), name(resource_type)))
}

fn name(answer: &Value) -> String {
    let name = answer.get("name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

/// Parses one page of a list in any of its three shapes: with envelope and page data, with page data alone, or bare
/// entries. Returns the number of pages, too, if the answer has a number above 0.
pub(super) fn page(answer: &Value) -> Result<(Vec<Entry>, Option<u64>), String> {
    let paged = match answer.get("data") {
        Some(data @ Value::Object(_)) => data,
        _ => answer,
    };
    let entries = match paged {
        Value::Array(entries) => Some(entries),
        _ => paged.get("data").and_then(Value::as_array),
    };
    let entries = entries.ok_or("the answer is no list: neither bare entries nor `data`")?;
    let entries = entries.iter().map(|entry| {
        let identifier = identifier(entry).ok_or("the list holds an entry without `identifier`")?;
        Ok(Entry {
            identifier: identifier.to_owned(),
            name: name(entry),
            resource_type: resource_type(entry),
        })
    });
    let entries = entries.collect::<Result<_, String>>()?;
    let total_pages = paged.get("total_pages").and_then(Value::as_u64);
    Ok((entries, total_pages.filter(|&pages| pages > 0)))
}

/// The names of a resource's tags, from its `resource.json` answer.
pub(super) fn tags(answer: &Value) -> Result<Vec<String>, String> {
    let tags = match answer.get("tags") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(tags) => tags.as_array().ok_or("`tags` is no list")?,
    };
    let name = |tag: &Value| Some(tag.get("name")?.as_str()?.to_owned());
    let names = tags.iter().map(name).collect::<Option<_>>();
    names.ok_or_else(|| "`tags` holds an entry without `name`".to_owned())
}

/// The text of an error's body: the message and the problem of each field. `reason` replaces a missing message.
pub(super) fn error_text(body: &[u8], reason: &str) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = body.get("error");
    let message = error.and_then(|error| error.get("message")?.as_str());
    let message = message.filter(|message| !message.is_empty());
    let mut text = message.unwrap_or(reason).to_owned();
    let validation = error.and_then(|error| error.get("validation")?.as_object());
    let by_field: BTreeMap<_, _> = validation.into_iter().flatten().collect();
    for (field, problem) in by_field {
        let problem = problem.as_str().map_or_else(|| problem.to_string(), str::to_owned);
        text.push_str(&format!("; {field}: {problem}"));
    }
    text
}

/// Whether an existing resource matches a creation. Addresses are compared independent of their spelling.
pub(super) fn same(wanted: &Spec, existing: &Spec) -> bool {
    let canonical = |spec: &Spec| {
        let mut spec = spec.clone();
        if let Spec::Bind(Bind { address, .. }) | Spec::Server(Server { ip: address, .. }) = &mut spec
            && let Ok(parsed) = address.parse::<IpAddr>()
        {
            *address = parsed.to_canonical().to_string();
        }
        spec
    };
    canonical(wanted) == canonical(existing)
}
