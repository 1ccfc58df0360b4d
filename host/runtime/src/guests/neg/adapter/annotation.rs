//! The annotation of a Service that asks for NEGs: its JSON, as GKE documents it, against the Service's ports.
//!
//! Stricter than GKE in one thing: a key that nobody knows is refused. A misspelt `name` would make another NEG than the one
//! that a load balancer looks for.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::ServiceName;
use super::names::is_resource_name;

/// The annotation of a Service: `{"exposed_ports": {"80": {"name": "web"}, "443": {}}}`.
pub const ANNOTATION: &str = "cloud.google.com/neg";

/// What a Service says about NEGs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// These ports have NEGs, by number.
    Exposed(BTreeMap<u16, Exposed>),
    /// Nothing that is acted on: `ingress` alone. Told once.
    IngressAlone,
    /// It can't be used; nothing changes until it can.
    Broken(Broken),
}

/// A port that has NEGs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exposed {
    /// The NEG's name that the annotation gives.
    pub(super) name: Option<String>,
    /// The name of the Service's port, by which slices name it too; empty: it has none.
    pub(super) port_name: String,
}

/// Why an annotation can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// One line, with the Service's name in it.
    pub(super) text: String,
    /// The ports under which it is told: those that the annotation names, else the Service's own.
    pub(super) ports: BTreeSet<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    #[serde(default)]
    ingress: bool,
    /// GKE reads `null` as none.
    #[serde(default, deserialize_with = "or_default")]
    exposed_ports: BTreeMap<String, Nullable>,
}

/// What is said of a port; `null` says nothing.
#[derive(Deserialize)]
struct Nullable(Option<Port>);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Port {
    #[serde(default)]
    name: Option<String>,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A port as decimal text, without sign and leading zero.
pub(super) fn port_number(text: &str) -> Option<u16> {
    let number: u16 = text.parse().ok().filter(|number| *number > 0)?;
    (number.to_string() == text).then_some(number)
}

/// What a Service asks for; none: it has no such annotation, or is being deleted.
pub(super) fn asked(service_name: &ServiceName, service: &Service) -> Option<Asked> {
    let text = service.metadata.annotations.as_ref()?.get(ANNOTATION)?;
    if service.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(match read(text) {
        Ok(json) if json.exposed_ports.is_empty() && json.ingress => Asked::IngressAlone,
        Ok(json) => exposed(&json, service).map_or_else(
            |reason| {
                let named = json.exposed_ports.keys().filter_map(|port| port_number(port));
                broken(service_name, reason, named.collect(), service)
            },
            Asked::Exposed,
        ),
        Err(reason) => broken(service_name, reason, BTreeSet::new(), service),
    })
}

fn broken(
    service_name: &ServiceName,
    reason: impl std::fmt::Display,
    named: BTreeSet<u16>,
    service: &Service,
) -> Asked {
    let own = || {
        let ports = ports(service).filter_map(|port| u16::try_from(port.port).ok());
        ports.filter(|port| *port > 0).collect()
    };
    Asked::Broken(Broken {
        text: format!("service `{service_name}`: annotation `{ANNOTATION}`: {reason}"),
        ports: if named.is_empty() { own() } else { named },
    })
}

fn read(text: &str) -> Result<Json, String> {
    let read = || -> serde_json::Result<(Json, bool)> {
        let json: Json = serde_json::from_str(text)?;
        // Where an object belongs, the library takes a list of its values too.
        let value: Value = serde_json::from_str(text)?;
        Ok((json, holds_list(&value)))
    };
    let cause = match read() {
        Ok((json, false)) => return Ok(json),
        Ok((_, true)) => "a list, where none may be".to_owned(),
        Err(error) => crate::text::line(&error.to_string()),
    };
    Err(format!(
        "{cause}: must be JSON such as `{{\"exposed_ports\": {{\"80\": {{\"name\": \"web\"}}}}}}`"
    ))
}

fn holds_list(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(entries) => entries.values().any(holds_list),
        _ => false,
    }
}

fn exposed(json: &Json, service: &Service) -> Result<BTreeMap<u16, Exposed>, String> {
    json.exposed_ports
        .iter()
        .map(|(text, Nullable(said))| {
            let wrong = |reason: String| format!("exposed_ports: port `{}`: {reason}", text.escape_debug());
            let number = port_number(text).ok_or_else(|| wrong("must be a number from 1 to 65535".to_owned()))?;
            let port_name = port_name(number, service).map_err(wrong)?;
            let name = said.as_ref().and_then(|port| port.name.clone());
            if let Some(name) = name.as_ref().filter(|name| !is_resource_name(name)) {
                return Err(wrong(format!(
                    "name was `{}`, must be 1 to 63 lower case letters, digits and `-`, with a letter first and no `-` last",
                    name.escape_debug()
                )));
            }
            Ok((number, Exposed { name, port_name }))
        })
        .collect()
}

/// The name of the Service's port with this number.
fn port_name(number: u16, service: &Service) -> Result<String, String> {
    let with_number = ports(service).filter(|port| port.port == i32::from(number));
    let mut protocols = BTreeSet::new();
    for port in with_number {
        // Left out, it is TCP: Kubernetes' default, which manifests do not fill in.
        match port.protocol.as_deref() {
            None | Some("" | "TCP") => return Ok(port.name.clone().unwrap_or_default()),
            Some(other) => protocols.insert(other),
        };
    }
    if let Some(protocol) = protocols.first() {
        return Err(format!("has protocol `{protocol}`: only TCP goes through a NEG"));
    }
    let known: Vec<String> = ports(service).map(|port| port.port.to_string()).collect();
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    Err(format!("the Service has no such port: it has {known}"))
}

fn ports(service: &Service) -> impl Iterator<Item = &k8s_openapi::api::core::v1::ServicePort> {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default().iter()
}

impl Asked {
    /// The ports under which the Service has keys.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        let (exposed, broken) = match self {
            Self::Exposed(exposed) => (Some(exposed), None),
            Self::IngressAlone => (None, None),
            Self::Broken(broken) => (None, Some(&broken.ports)),
        };
        let exposed = exposed.into_iter().flat_map(BTreeMap::keys);
        exposed.chain(broken.into_iter().flatten()).copied()
    }
}
