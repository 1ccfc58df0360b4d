//! Bodies of requests and answers.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value, json};

use super::Refusal;
use super::kinds::{Field, Kind, Shape, StateId};
use super::world::{Object, World};

/// The problem of a reference to a missing object; also the message if nothing else is wrong.
const UNKNOWN_REFERENCE: &str = "unknown reference";

/// The JSON of a request.
pub(super) fn parse_json(headers: &HeaderMap, body: &[u8]) -> Result<Value, Refusal> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
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
    let mut validation = BTreeMap::new();
    check_envelope(identifier, &mut body, &mut validation);

    let mut fields = BTreeMap::new();
    for field in kind.fields() {
        // Null means absent: clients write either.
        match body.remove(field.name).filter(|value| !value.is_null()) {
            Some(value) => match problem(field, &value, world) {
                Some(problem) => _ = validation.insert(field.name.to_owned(), problem.to_owned()),
                None => _ = fields.insert(field.name.to_owned(), value),
            },
            None if field.required => _ = validation.insert(field.name.to_owned(), "must be there".to_owned()),
            None => {}
        }
    }
    for (unknown, _) in body {
        validation.insert(unknown, "unknown field".to_owned());
    }

    if validation.is_empty() {
        return Ok(fields);
    }
    let references_alone = validation.values().all(|problem| problem == UNKNOWN_REFERENCE);
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

/// Removes `identifier` and `state`, which are not fields of the object, and checks them.
fn check_envelope(existing: Option<&str>, body: &mut Map<String, Value>, validation: &mut BTreeMap<String, String>) {
    let identifier = body.remove("identifier");
    let state = body.remove("state");
    match existing {
        None => {
            for (name, value) in [("identifier", identifier), ("state", state)] {
                if value.is_some() {
                    validation.insert(name.to_owned(), "must be absent when creating".to_owned());
                }
            }
        }
        Some(expected) => {
            if identifier.is_some_and(|identifier| identifier != expected) {
                validation.insert("identifier".to_owned(), "must be the one in the path".to_owned());
            }
            if state.is_some_and(|state| serde_json::from_value::<StateId>(state).is_err()) {
                validation.insert("state".to_owned(), "must be the id of a state, as text".to_owned());
            }
        }
    }
}

fn problem(field: &Field, value: &Value, world: &World) -> Option<&'static str> {
    match field.shape {
        Shape::Text => match value.as_str() {
            None => Some("must be text"),
            Some("") if field.required => Some("must not be empty"),
            Some(_) => None,
        },
        Shape::Mode => (!matches!(value.as_str(), Some("tcp" | "http"))).then_some("must be \"tcp\" or \"http\""),
        Shape::Port => {
            let is_port = value
                .as_u64()
                .is_some_and(|port| (1..=u64::from(u16::MAX)).contains(&port));
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
    let mut body = Map::new();
    for field in object.kind.fields() {
        let value = object.fields.get(field.name).filter(|value| !value.is_null());
        match (field.shape, value) {
            (Shape::Reference(_), value) => {
                let target = value
                    .and_then(Value::as_str)
                    .and_then(|identifier| world.objects.get(identifier));
                body.insert(field.name.to_owned(), target.map(object_in_short).unwrap_or_default());
            }
            (_, Some(value)) => _ = body.insert(field.name.to_owned(), value.clone()),
            (_, None) => {}
        }
    }
    body.insert("identifier".to_owned(), json!(object.identifier));
    body.insert("state".to_owned(), object.state.wire());
    // No client reads these. They are here because a client must tolerate fields that it does not know.
    body.insert("customer_identifier".to_owned(), json!("simulated-customer"));
    body.insert("reseller_identifier".to_owned(), json!("simulated-reseller"));
    body.insert("automation_rules".to_owned(), json!([]));
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
    let (identifier, name) = kind.resource_type();
    json!({"identifier": identifier, "name": name})
}
