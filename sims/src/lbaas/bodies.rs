//! Bodies of requests and answers.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::Refusal;
use super::kinds::{Field, Kind, Shape, StateId};
use super::world::{Object, World};

/// The problem of a reference to a missing object; also the message if nothing else is wrong.
const UNKNOWN_REFERENCE: &str = "unknown reference";

/// The JSON of a request.
pub(super) fn parse_json(headers: &HeaderMap, body: &[u8]) -> Result<Value, Refusal> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let message = format!("the content type was `{essence}`, must be `application/json`");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    serde_json::from_slice(body).map_err(|error| Refusal::bad_request(format!("the body is no JSON: {error}")))
}

/// The fields of an object to create, or to update if it has an identifier already.
pub(super) fn parse_fields(
    kind: Kind,
    identifier: Option<&str>,
    body: Value,
    world: &World,
) -> Result<BTreeMap<String, Value>, Refusal> {
    let Value::Object(mut body) = body else {
        return Err(Refusal::bad_request("the body must be a JSON object"));
    };
    let mut validation: BTreeMap<String, &str> = BTreeMap::new();
    // These are not fields of the object.
    for name in ["identifier", "state"] {
        let Some(value) = body.remove(name) else { continue };
        let problem = match identifier {
            None => Some("must be absent when creating"),
            Some(expected) if name == "identifier" => (value != expected).then_some("must be the one in the path"),
            Some(_) => StateId::deserialize(value)
                .is_err()
                .then_some("must be the id of a state, as text"),
        };
        validation.extend(problem.map(|problem| (name.to_owned(), problem)));
    }
    let mut fields = BTreeMap::new();
    for field @ Field(name, _, required) in kind.about().fields {
        // Null means absent: clients write either.
        let value = body.remove(*name).filter(|value| !value.is_null());
        let problem = match &value {
            Some(value) => problem(field, value, world),
            None => required.then_some("must be there"),
        };
        match problem {
            Some(problem) => _ = validation.insert((*name).to_owned(), problem),
            None => fields.extend(value.map(|value| ((*name).to_owned(), value))),
        }
    }
    validation.extend(body.into_iter().map(|(unknown, _)| (unknown, "unknown field")));
    if validation.is_empty() {
        return Ok(fields);
    }
    let references_alone = validation.values().all(|problem| *problem == UNKNOWN_REFERENCE);
    let message = if references_alone {
        UNKNOWN_REFERENCE
    } else {
        "the object is not valid"
    };
    Err(Refusal {
        member: Some(("validation", json!(validation))),
        ..Refusal::unprocessable(message)
    })
}

fn problem(Field(_, shape, required): &Field, value: &Value, world: &World) -> Option<&'static str> {
    match *shape {
        Shape::Text => match value.as_str() {
            None => Some("must be text"),
            Some("") if *required => Some("must not be empty"),
            Some(_) => None,
        },
        Shape::Mode => (!matches!(value.as_str(), Some("tcp" | "http"))).then_some("must be \"tcp\" or \"http\""),
        Shape::Port => {
            let ports = 1..=u64::from(u16::MAX);
            let is_port = value.as_u64().is_some_and(|port| ports.contains(&port));
            (!is_port).then_some("must be a number from 1 to 65535")
        }
        Shape::Flag => (!value.is_boolean()).then_some("must be true or false"),
        Shape::Number => (!value.is_number()).then_some("must be a number"),
        Shape::Reference(kind) => match value.as_str() {
            None => Some("must be an identifier as text"),
            Some(identifier) => world.get(kind, identifier).is_none().then_some(UNKNOWN_REFERENCE),
        },
    }
}

/// An object in full, as the answer of its own path.
pub(super) fn object_in_full(object: &Object, world: &World) -> Value {
    let fields = object.kind.about().fields.iter();
    let fields = fields.filter_map(|Field(name, shape, _)| {
        let value = object.fields.get(*name).filter(|value| !value.is_null());
        let shown = match shape {
            Shape::Reference(_) => {
                let target = value.and_then(|value| world.objects.get(value.as_str()?));
                target.map(object_in_short).unwrap_or_default()
            }
            _ => value?.clone(),
        };
        Some(((*name).to_owned(), shown))
    });
    let mut body: Map<String, Value> = fields.collect();
    let more = [
        ("identifier", json!(object.identifier)),
        ("state", object.state.wire()),
        // No client reads these. They are here because a client must tolerate fields that it does not know.
        ("customer_identifier", json!("simulated-customer")),
        ("reseller_identifier", json!("simulated-reseller")),
        ("automation_rules", json!([])),
    ];
    body.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(body)
}

/// As lists and references show an object.
pub(super) fn object_in_short(object: &Object) -> Value {
    json!({"identifier": object.identifier, "name": object.name()})
}

/// As lists of resources show an object.
pub(super) fn resource_in_short(object: &Object, with_type: bool) -> Value {
    let mut body = object_in_short(object);
    if let (true, Some(body)) = (with_type, body.as_object_mut()) {
        body.insert("resource_type".to_owned(), resource_type(object.kind));
    }
    body
}

/// A resource in full, with its tags.
pub(super) fn resource_in_full(object: &Object, world: &World) -> Value {
    let tags: Vec<Value> = object
        .tags
        .iter()
        .map(|tag| json!({"name": tag, "identifier": world.tags.get(tag)}))
        .collect();
    json!({
        "identifier": object.identifier,
        "name": object.name(),
        "resource_type": resource_type(object.kind),
        "tags": tags,
    })
}

fn resource_type(kind: Kind) -> Value {
    let (identifier, name) = kind.about().resource_type;
    json!({"identifier": identifier, "name": name})
}
