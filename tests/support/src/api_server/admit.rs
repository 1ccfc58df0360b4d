//! Prepares an object before the API server stores it: defaults, and validation, for each kind.
//!
//! Refuses what a client of this project could get wrong, which is less than Kubernetes' whole validation.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::failure::{Cause, Failure};
use super::kinds::{EVENTS_GROUP, Kind, RBAC_GROUP, Trait};
use super::service;
use super::store::Store;

/// The default grace period of a Pod, in seconds.
const GRACE_S: u64 = 30;

/// The longest note of a new Event, `NoteLengthLimit`.
const NOTE_BYTES_MAX: usize = 1024;

/// Completes and checks an object before it is stored; `old` is the one that it replaces. Ignores status.
pub(super) fn object(store: &mut Store, kind: &Kind, object: &mut Value, old: Option<&Value>) -> Result<(), Failure> {
    let mut wrong = metadata(kind, &object["metadata"]);
    if old.is_none() && kind.has(Trait::Status) && !kind.has(Trait::StatusAtCreation) {
        object["status"] = first_status(kind);
    }
    match kind.plural {
        "services" => {
            if let Err(more) = service::complete(store, object, old) {
                wrong.extend(more);
            }
        }
        "pods" => {
            set(object, "restartPolicy", json!("Always"));
            set(object, "terminationGracePeriodSeconds", json!(GRACE_S));
        }
        "namespaces" => {
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = object["metadata"]["name"].clone();
            if old.is_none() {
                object["spec"]["finalizers"] = json!(["kubernetes"]);
            }
        }
        "secrets" => secret(object),
        "statefulsets" => set(object, "replicas", json!(1)),
        "endpointslices" => wrong.extend(endpoint_slice(object, old)),
        "leases" => wrong.extend(lease(&object["spec"])),
        "rolebindings" | "clusterrolebindings" => wrong.extend(binding(object, old)),
        _ => {}
    }
    refuse(kind, object, &wrong)
}

/// Checks a status before it is stored.
pub(super) fn status(kind: &Kind, object: &Value) -> Result<(), Failure> {
    let wrong = if kind.plural == "services" {
        service::status_faults(object)
    } else {
        Vec::new()
    };
    refuse(kind, object, &wrong)
}

/// Checks a new Event in the form of the newer group; the older group requires less.
pub(super) fn new_event(kind: &Kind, event: &Value) -> Result<(), Failure> {
    if kind.group != EVENTS_GROUP {
        return Ok(());
    }
    let mut wrong = Vec::new();
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    for name in ["reportingController", "reportingInstance", "action", "reason"] {
        if text(name).is_empty() {
            wrong.push(Cause::required(name, ""));
        }
    }
    if event["eventTime"].is_null() {
        wrong.push(Cause::required("eventTime", ""));
    }
    if !["Normal", "Warning"].contains(&text("type")) {
        wrong.push(Cause::invalid("type", &event["type"], "has invalid value"));
    }
    if text("note").len() > NOTE_BYTES_MAX {
        wrong.push(Cause::invalid("note", &json!(""), "can have at most 1024 characters"));
    }
    let about = event["regarding"]["namespace"].as_str().unwrap_or("default");
    if event["metadata"]["namespace"] != about {
        let why = "does not match event.namespace";
        wrong.push(Cause::invalid(
            "regarding.namespace",
            &event["regarding"]["namespace"],
            why,
        ));
    }
    refuse(kind, event, &wrong)
}

fn refuse(kind: &Kind, object: &Value, wrong: &[Cause]) -> Result<(), Failure> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Failure::invalid(kind, name, wrong))
    }
}

fn set(object: &mut Value, name: &str, value: Value) {
    if object["spec"][name].is_null() {
        object["spec"][name] = value;
    }
}

fn first_status(kind: &Kind) -> Value {
    match kind.plural {
        "services" => json!({ "loadBalancer": {} }),
        "pods" => json!({ "phase": "Pending", "qosClass": "BestEffort" }),
        "namespaces" => json!({ "phase": "Active" }),
        _ => json!({}),
    }
}

fn metadata(kind: &Kind, metadata: &Value) -> Vec<Cause> {
    let mut wrong = Vec::new();
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return vec![Cause::required("metadata.name", "name or generateName is required")];
    }
    if let Some(why) = name_fault(kind, name) {
        wrong.push(Cause::invalid("metadata.name", &metadata["name"], why));
    }
    for (_, value) in metadata["labels"].as_object().into_iter().flatten() {
        if !value.as_str().is_some_and(is_label_value) {
            let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                       and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
                       '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
            wrong.push(Cause::invalid("metadata.labels", value, why));
        }
    }
    for (at, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&name);
        if !standard && !name.contains('/') {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            wrong.push(Cause::invalid(format!("metadata.finalizers[{at}]"), finalizer, why));
        }
    }
    wrong
}

fn is_label_value(value: &str) -> bool {
    let inner = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let edge = |letter: Option<char>| letter.is_none_or(|letter| letter.is_ascii_alphanumeric());
    value.len() <= 63 && value.chars().all(inner) && edge(value.chars().next()) && edge(value.chars().last())
}

fn name_fault(kind: &Kind, name: &str) -> Option<&'static str> {
    let lower = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let edges = name.starts_with(lower) && name.ends_with(lower);
    match (kind.group, kind.plural) {
        // Names of roles are path segments.
        (RBAC_GROUP, _) => {
            (name.contains(['/', '%']) || name == "." || name == "..").then_some("may not contain '/' or '%'")
        }
        ("", "services") => {
            let fits = edges && name.starts_with(|letter: char| letter.is_ascii_lowercase());
            let fits = fits && name.len() <= 63 && name.chars().all(|letter| lower(letter) || letter == '-');
            (!fits).then_some(
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            )
        }
        ("", "namespaces") => {
            let fits = edges && name.len() <= 63 && name.chars().all(|letter| lower(letter) || letter == '-');
            (!fits).then_some(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            )
        }
        _ => {
            let fits = edges && name.len() <= 253 && name.chars().all(|letter| lower(letter) || "-.".contains(letter));
            (!fits).then_some(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                 must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            )
        }
    }
}

fn secret(object: &mut Value) {
    if object["type"].as_str().is_none_or(str::is_empty) {
        object["type"] = json!("Opaque");
    }
    let plain = object.as_object_mut().and_then(|object| object.remove("stringData"));
    for (name, value) in plain.as_ref().and_then(Value::as_object).into_iter().flatten() {
        object["data"][name] = json!(BASE64_STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

fn endpoint_slice(slice: &mut Value, old: Option<&Value>) -> Vec<Cause> {
    let mut wrong = Vec::new();
    for port in slice["ports"].as_array_mut().into_iter().flatten() {
        for (name, value) in [("name", ""), ("protocol", "TCP")] {
            if port[name].is_null() {
                port[name] = json!(value);
            }
        }
    }
    let known = ["FQDN", "IPv4", "IPv6"];
    match slice["addressType"].as_str().unwrap_or_default() {
        "" => wrong.push(Cause::required("addressType", "")),
        kind if !known.contains(&kind) => {
            wrong.push(Cause::unsupported("addressType", &slice["addressType"], &known));
        }
        _ => {}
    }
    if old.is_some_and(|old| old["addressType"] != slice["addressType"]) {
        wrong.push(Cause::invalid(
            "addressType",
            &slice["addressType"],
            "field is immutable",
        ));
    }
    for (at, endpoint) in slice["endpoints"].as_array().into_iter().flatten().enumerate() {
        let field = format!("endpoints[{at}].addresses");
        let addresses = endpoint["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
        if addresses.is_empty() {
            wrong.push(Cause::required(field.clone(), "must contain at least 1 address"));
        }
        for (nth, address) in addresses.iter().enumerate() {
            let parsed = address.as_str().and_then(|text| text.parse::<std::net::IpAddr>().ok());
            let fits = match slice["addressType"].as_str() {
                Some("IPv4") => parsed.is_some_and(|ip| ip.is_ipv4()),
                Some("IPv6") => parsed.is_some_and(|ip| ip.is_ipv6()),
                _ => true,
            };
            if !fits {
                wrong.push(Cause::invalid(
                    format!("{field}[{nth}]"),
                    address,
                    "must be a valid IP address",
                ));
            }
        }
    }
    wrong
}

fn lease(spec: &Value) -> Vec<Cause> {
    let mut wrong = Vec::new();
    for (field, least, why) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        let value = &spec[field];
        if value.as_i64().is_some_and(|number| number < least) {
            wrong.push(Cause::invalid(format!("spec.{field}"), value, why));
        }
    }
    wrong
}

fn binding(object: &mut Value, old: Option<&Value>) -> Vec<Cause> {
    if object["roleRef"]["apiGroup"].as_str().is_none_or(str::is_empty) {
        object["roleRef"]["apiGroup"] = json!(RBAC_GROUP);
    }
    for subject in object["subjects"].as_array_mut().into_iter().flatten() {
        if subject["apiGroup"].is_null() && subject["kind"] != "ServiceAccount" {
            subject["apiGroup"] = json!(RBAC_GROUP);
        }
    }
    let changed = old.is_some_and(|old| old["roleRef"] != object["roleRef"]);
    let wrong = changed.then(|| Cause::invalid("roleRef", &object["roleRef"], "cannot change roleRef"));
    wrong.into_iter().collect()
}
