//! The meaning of a request: its path, its parameters, its body.
//!
//! Only parses; `http.rs` answers.

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::controls::Asked;
use super::delete::Deletion;
use super::failure::Failure;
use super::kinds::{self, Kind};
use super::protobuf;
use super::read::Wanted;
use super::select::Selector;
use super::view::OFFERED;
use super::write::{Patch, Place, Terms};

/// A parsed request.
pub(super) struct Call {
    pub(super) asked: Asked,
    /// `None` for paths without a resource.
    pub(super) kind: Option<&'static Kind>,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

pub(super) fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The subject of a path. The verb of a watch is still that of the list.
pub(super) fn read_path(method: &Method, path: &str) -> (Asked, Option<&'static Kind>) {
    let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let mut asked = Asked {
        verb: method.as_str().to_lowercase(),
        path: path.to_owned(),
        ..Asked::default()
    };
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return (asked, None),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, resource, rest @ ..] if *resource != "status" => {
            (*namespace, [&[*resource], rest].concat())
        }
        rest => ("", rest.to_vec()),
    };
    let (resource, name, subresource) = match rest.as_slice() {
        [resource] => (*resource, "", ""),
        [resource, name] => (*resource, *name, ""),
        [resource, name, subresource] => (*resource, *name, *subresource),
        _ => return (asked, None),
    };
    let kind = kinds::by_resource(group, resource).filter(|kind| kind.version == version);
    let (one, verb) = (!name.is_empty(), method.as_str());
    asked.verb = match (verb, one) {
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "",
    }
    .to_owned();
    for (field, value) in [
        (&mut asked.group, group),
        (&mut asked.resource, resource),
        (&mut asked.subresource, subresource),
        (&mut asked.namespace, namespace),
        (&mut asked.name, name),
    ] {
        value.clone_into(field);
    }
    (asked, kind)
}

/// A part of a path, with `%3A` and the like decoded.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        match after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(b'%');
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn terms(asked: &Asked) -> Terms<'_> {
    Terms {
        dry_run: asked.parameter("dryRun") == "All",
        manager: asked.parameter("fieldManager"),
        now: Timestamp::now(),
    }
}

pub(super) fn place<'a>(asked: &'a Asked, kind: &'static Kind) -> Place<'a> {
    Place {
        kind,
        namespace: &asked.namespace,
        name: &asked.name,
        status: asked.subresource == "status",
    }
}

pub(super) fn namespace_of(asked: &Asked, body: &Value) -> String {
    let given = body["metadata"]["namespace"].as_str().filter(|given| !given.is_empty());
    if asked.namespace.is_empty() {
        given.unwrap_or("default").to_owned()
    } else {
        asked.namespace.clone()
    }
}

pub(super) fn read_wanted(asked: &Asked, kind: &Kind) -> Result<Wanted, Failure> {
    let mut fields = asked.parameter("fieldSelector").to_owned();
    if !asked.name.is_empty() {
        fields = format!("metadata.name={}", asked.name);
    }
    let selector = Selector::read(asked.parameter("labelSelector"), &fields).map_err(Failure::bad_request)?;
    if let Some(unknown) = selector.unknown_field(kind) {
        return Err(Failure::bad_request(format!("field label not supported: {unknown}")));
    }
    Ok(Wanted {
        namespace: (!asked.namespace.is_empty()).then(|| asked.namespace.clone()),
        selector,
        limit: asked.parameter("limit").parse().unwrap_or(0),
        proceed: asked.parameter("continue").to_owned(),
        version: asked.parameter("resourceVersion").to_owned(),
        version_match: asked.parameter("resourceVersionMatch").to_owned(),
    })
}

pub(super) enum Change {
    Replace(Value),
    Patch(Patch),
}

fn media(headers: &HeaderMap) -> &str {
    text(headers, header::CONTENT_TYPE)
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
}

pub(super) fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

pub(super) fn read_body(call: &Call) -> Result<Value, Failure> {
    match media(&call.headers) {
        "" | "application/json" => parsed(&call.body),
        protobuf::MEDIA => protobuf::object(&call.body).ok_or_else(|| Failure::unsupported_media(OFFERED)),
        _ => Err(Failure::unsupported_media(OFFERED)),
    }
}

fn parsed(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body of the request is no JSON: {error}")))
}

pub(super) fn read_change(call: &Call) -> Result<Change, Failure> {
    if call.method == Method::PUT {
        return read_body(call).map(Change::Replace);
    }
    let patch: fn(Value) -> Patch = match media(&call.headers) {
        "application/json-patch+json" => Patch::Json,
        "application/merge-patch+json" => Patch::Merge,
        "application/strategic-merge-patch+json" => Patch::Strategic,
        // Accepts only the part of YAML that is also JSON, which is what kubectl and kube send.
        "application/apply-patch+yaml" => Patch::Apply,
        _ => {
            let offered = "application/json-patch+json, application/merge-patch+json, \
                           application/strategic-merge-patch+json, application/apply-patch+yaml";
            return Err(Failure::unsupported_media(offered));
        }
    };
    Ok(Change::Patch(patch(parsed(&call.body)?)))
}

pub(super) fn read_deletion(call: &Call) -> Result<Deletion, Failure> {
    let body = if call.body.is_empty() {
        json!({})
    } else {
        read_body(call)?
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let conditions = &body["preconditions"];
    let policy =
        text(&body["propagationPolicy"]).unwrap_or_else(|| call.asked.parameter("propagationPolicy").to_owned());
    let grace_s = body["gracePeriodSeconds"].as_u64();
    Ok(Deletion {
        uid: text(&conditions["uid"]),
        version: text(&conditions["resourceVersion"]),
        orphan: policy == "Orphan" || body["orphanDependents"] == true,
        grace_s: grace_s.or_else(|| call.asked.parameter("gracePeriodSeconds").parse().ok()),
    })
}
