//! The server's discovery: its version, its groups and resources, and that it publishes no schemas.
//!
//! Every kubectl from 1.20 on accepts the version. Discovery uses the old form, group by group; a client that asks for
//! the newer, aggregated one gets the old one too, and accepts it.

use serde_json::{Value, json};

use super::kinds::{KINDS, Kind, Trait};

/// `GET /version`.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "32", "gitVersion": "v1.32.0", "gitCommit": "trueup-tests", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// The document at a path of discovery, if there is one.
pub(super) fn at(path: &[&str]) -> Option<Value> {
    match path {
        ["version"] => Some(version()),
        ["api"] => Some(json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })),
        ["api", "v1"] => Some(resources("", "v1")),
        ["apis"] => {
            let groups: Vec<Value> = groups()
                .into_iter()
                .map(|(group, version)| told(group, version))
                .collect();
            Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        ["apis", group] => groups()
            .into_iter()
            .find(|known| known.0 == *group)
            .map(|(group, version)| {
                let mut told = told(group, version);
                told["kind"] = json!("APIGroup");
                told["apiVersion"] = json!("v1");
                told
            }),
        ["apis", group, version] => groups().contains(&(group, version)).then(|| resources(group, version)),
        _ => None,
    }
}

fn groups() -> Vec<(&'static str, &'static str)> {
    let mut groups: Vec<_> = KINDS
        .iter()
        .map(|kind| (kind.group, kind.version))
        .filter(|known| !known.0.is_empty())
        .collect();
    groups.dedup();
    groups
}

fn told(group: &str, version: &str) -> Value {
    let version = json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    json!({ "name": group, "versions": [version], "preferredVersion": version })
}

fn resources(group: &str, version: &str) -> Value {
    let of_group = KINDS
        .iter()
        .filter(|kind| kind.group == group && kind.version == version);
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": of_group.flat_map(resource).collect::<Vec<_>>(),
    })
}

fn resource(kind: &Kind) -> Vec<Value> {
    let verbs = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    let mut whole = json!({
        "name": kind.plural, "singularName": kind.kind.to_lowercase(), "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": verbs, "shortNames": kind.short,
    });
    if kind.has(Trait::InAll) {
        whole["categories"] = json!(["all"]);
    }
    let status = json!({
        "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": ["get", "patch", "update"],
    });
    if kind.has(Trait::Status) {
        vec![whole, status]
    } else {
        vec![whole]
    }
}

/// `GET /openapi/v2` in protobuf, `openapi.v2.Document`: `swagger: "2.0", info: {title: "trueup tests", version: "v1"}`
/// and no definitions, so that kubectl leaves all validation to the server.
///
/// ```text
/// field 1 (swagger), 3 bytes | field 2 (info), 18 bytes: field 1 (title), 12 bytes; field 2 (version), 2 bytes
/// ```
pub(super) const OPENAPI_V2: &[u8] = b"\x0a\x032.0\x12\x12\x0a\x0ctrueup tests\x12\x02v1";

/// Its media type. Clients ask for it with `@` before the version, which Go's parser of media types can't read; the
/// answer has a dot instead.
pub(super) const OPENAPI_V2_MEDIA: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The same document in JSON.
pub(super) fn openapi_v2() -> Value {
    json!({ "swagger": "2.0", "info": { "title": "trueup tests", "version": "v1" }, "paths": {} })
}
