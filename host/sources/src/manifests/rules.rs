//! What an API server rejects beyond wrong types: values outside their enum, invalid ports, and missing fields.
//!
//! A table of rules that are checked against the parsed value, so that each problem has a line. It contains only fields
//! that the host reads.

use trueup_base::text::offer;

use crate::object::Kind;
use crate::yaml::{FieldError, Node, Value};

/// A rule for a value. Absent values, null and empty text (which means "not set" in Kubernetes) are not checked.
enum Must {
    OneOf(&'static [&'static str]),
    /// A whole number from this to [`PORT_MAX`]. Text is a port's name.
    Port(u64),
    /// The entry with this name exists and is not 0.
    Have(&'static str),
}

use Must::{Have, OneOf, Port};

const PORT_MAX: u64 = 65_535;

const PROTOCOLS: Must = OneOf(&["TCP", "UDP", "SCTP"]);
const TRAFFIC_POLICIES: Must = OneOf(&["Cluster", "Local"]);
const TYPES: Must = OneOf(&["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]);
const FAMILY_POLICIES: Must = OneOf(&["SingleStack", "PreferDualStack", "RequireDualStack"]);
const ADDRESS_TYPES: Must = OneOf(&["Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"]);
const PHASES: Must = OneOf(&["Pending", "Running", "Succeeded", "Failed", "Unknown"]);
const TRUTHS: Must = OneOf(&["True", "False", "Unknown"]);

/// Rules by path, from the API reference of Kubernetes. `[]` means each element of a list.
const SERVICE: &[(&str, Must)] = &[
    ("spec.type", TYPES),
    ("spec.externalTrafficPolicy", TRAFFIC_POLICIES),
    ("spec.internalTrafficPolicy", TRAFFIC_POLICIES),
    ("spec.sessionAffinity", OneOf(&["None", "ClientIP"])),
    ("spec.ipFamilyPolicy", FAMILY_POLICIES),
    ("spec.ipFamilies[]", OneOf(&["IPv4", "IPv6"])),
    ("spec.healthCheckNodePort", Port(0)),
    ("spec.ports[]", Have("port")),
    ("spec.ports[].port", Port(1)),
    ("spec.ports[].nodePort", Port(0)),
    ("spec.ports[].targetPort", Port(0)),
    ("spec.ports[].protocol", PROTOCOLS),
    ("status.loadBalancer.ingress[].ipMode", OneOf(&["VIP", "Proxy"])),
];

const ENDPOINT_SLICE: &[(&str, Must)] = &[
    ("addressType", OneOf(&["IPv4", "IPv6", "FQDN"])),
    ("ports[].port", Port(1)),
    ("ports[].protocol", PROTOCOLS),
];

const NODE: &[(&str, Must)] = &[
    ("status.addresses[].type", ADDRESS_TYPES),
    ("status.conditions[].status", TRUTHS),
];

const POD: &[(&str, Must)] = &[
    ("status.phase", PHASES),
    ("status.conditions[].status", TRUTHS),
    ("spec.containers[].ports[].containerPort", Port(1)),
    ("spec.containers[].ports[].protocol", PROTOCOLS),
];

/// Checks a supported object whose types are correct.
pub(super) fn check(kind: Kind, object: &Node) -> Result<(), FieldError> {
    let rules = match kind {
        Kind::EndpointSlice => ENDPOINT_SLICE,
        Kind::Node => NODE,
        Kind::Pod => POD,
        Kind::Service => SERVICE,
    };
    rules.iter().try_for_each(|(path, must)| follow(object, path, must))?;
    if kind == Kind::Service {
        has_ports(object)?;
    }
    Ok(())
}

/// Applies the rule to every value at a path.
fn follow(value: &Node, path: &str, must: &Must) -> Result<(), FieldError> {
    if path.is_empty() {
        return meets(value, must);
    }
    if let Some(rest) = path.strip_prefix("[]") {
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        return value.items().iter().enumerate().try_for_each(|(index, element)| {
            follow(element, rest, must).map_err(|error| error.within(format!("[{index}]")))
        });
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (field, rest) = path.split_at(end);
    let Some(at) = value.entry(field) else { return Ok(()) };
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    follow(at, rest, must).map_err(|error| error.within(field.to_owned()))
}

fn meets(value: &Node, must: &Must) -> Result<(), FieldError> {
    match (must, &value.value) {
        (OneOf(words), Value::Text(text)) if !text.is_empty() && !words.contains(&text.as_str()) => {
            let was = text.escape_debug();
            let meant = offer(text, words.iter().copied());
            let what = format!("was `{was}`, must be one of {}{meant}", words.join(", "));
            Err(FieldError::of(value, what))
        }
        (Port(min), Value::Number(number)) if !number.as_u64().is_some_and(|it| (*min..=PORT_MAX).contains(&it)) => {
            let what = format!("was {number}, must be a whole number from {min} to {PORT_MAX}");
            Err(FieldError::of(value, what))
        }
        (Have(field), Value::Map(_)) if value.entry(field).is_none_or(|it| it.value == Value::Null) => {
            Err(FieldError::of(value, "is missing").within((*field).to_owned()))
        }
        _ => Ok(()),
    }
}

/// Some types of Service require a port.
fn has_ports(service: &Node) -> Result<(), FieldError> {
    let spec = service.entry("spec");
    let kind = spec.and_then(|spec| spec.text("type"));
    let (Some(spec), Some(kind @ ("NodePort" | "LoadBalancer"))) = (spec, kind) else {
        return Ok(());
    };
    let ports = spec.entry("ports");
    if ports.is_some_and(|ports| !ports.items().is_empty()) {
        return Ok(());
    }
    let what = format!("is missing: a Service of type {kind} has at least one port");
    let error = FieldError::of(ports.unwrap_or(spec), what);
    Err(error.within("ports".to_owned()).within("spec".to_owned()))
}
