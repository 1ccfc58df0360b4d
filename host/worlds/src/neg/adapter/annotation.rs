//! The annotation of a Service that requests NEGs: checks its JSON, as documented by GKE, against the Service's ports.
//!
//! This is stricter than GKE in one point: an unknown key is an error. A misspelt `name` would create a NEG that the
//! load balancer does not use.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use trueup_config::is_resource_name;
use trueup_work::objects::Id as ServiceName;

/// The annotation of a Service: `{"exposed_ports": {"80": {"name": "web"}, "443": {}}}`.
pub(crate) const ANNOTATION: &str = "cloud.google.com/neg";

/// The request of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// These ports have NEGs, by number.
    Exposed(BTreeMap<u16, Exposed>),
    /// Only `ingress`, which has no effect here. Reported once.
    IngressAlone,
    /// The annotation is invalid: nothing changes until it is fixed.
    Broken {
        /// One line that contains the Service's name.
        text: String,
        /// The ports that show the error: those in the annotation, otherwise the Service's own.
        ports: BTreeSet<u16>,
    },
}

/// A port with NEGs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exposed {
    /// The name in the annotation.
    pub(super) name: Option<String>,
    /// The name of the Service's port, which slices use too. Empty if it has none.
    pub(super) port_name: String,
    /// When the Service was created. `None` in manifests.
    pub(super) created: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    #[serde(default)]
    ingress: bool,
    /// GKE treats `null` as absent.
    #[serde(default, deserialize_with = "or_default")]
    exposed_ports: BTreeMap<String, Option<Port>>,
}

/// The options of a port; `null` means none.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Port {
    name: Option<String>,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A port as decimal text, without sign or leading zero.
pub(super) fn port_number(text: &str) -> Option<u16> {
    let number: u16 = text.parse().ok().filter(|number| *number > 0)?;
    (number.to_string() == text).then_some(number)
}

/// The request of a Service. `None` if it has no such annotation, or is being deleted.
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
                broken(service_name, &reason, named.collect(), service)
            },
            Asked::Exposed,
        ),
        Err(reason) => broken(service_name, &reason, BTreeSet::new(), service),
    })
}

fn broken(service_name: &ServiceName, reason: &str, named: BTreeSet<u16>, service: &Service) -> Asked {
    let own = || {
        let ports = ports(service).filter_map(|port| u16::try_from(port.port).ok());
        ports.filter(|port| *port > 0).collect()
    };
    Asked::Broken {
        text: format!("service `{service_name}`: annotation `{ANNOTATION}`: {reason}"),
        ports: if named.is_empty() { own() } else { named },
    }
}

fn read(text: &str) -> Result<Json, String> {
    let read = serde_json::from_str(text).and_then(|json: Json| Ok((json, serde_json::from_str(text)?)));
    let cause = match read {
        Ok((json, value)) if !holds_list(&value) => return Ok(json),
        // For an object, the library also accepts a list of its values.
        Ok(_) => "a list, where none may be".to_owned(),
        Err(error) => trueup_base::text::line(&error.to_string()),
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
    let mut exposed = BTreeMap::new();
    for (text, said) in &json.exposed_ports {
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
        let created = service.metadata.creation_timestamp.clone();
        let port = Exposed {
            name,
            port_name,
            created,
        };
        exposed.insert(number, port);
    }
    Ok(exposed)
}

/// The name of the Service's port with this number.
fn port_name(number: u16, service: &Service) -> Result<String, String> {
    let mut protocols = BTreeSet::new();
    for port in ports(service).filter(|port| port.port == i32::from(number)) {
        // If it is missing, it is TCP: Kubernetes' default, which manifests do not contain.
        match port.protocol.as_deref() {
            None | Some("" | "TCP") => return Ok(port.name.clone().unwrap_or_default()),
            Some(other) => protocols.insert(other),
        };
    }
    if let Some(protocol) = protocols.first() {
        return Err(format!("has protocol `{protocol}`: only TCP goes through a NEG"));
    }
    let known: Vec<String> = ports(service).map(|port| port.port.to_string()).collect();
    Err(match known.is_empty() {
        true => "the Service has no such port: it has none".to_owned(),
        false => format!("the Service has no such port: it has {}", known.join(", ")),
    })
}

fn ports(service: &Service) -> impl Iterator<Item = &k8s_openapi::api::core::v1::ServicePort> {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default().iter()
}

impl Asked {
    /// The ports for which the Service has keys.
    pub(super) fn ports(&self) -> BTreeSet<u16> {
        match self {
            Self::Exposed(exposed) => exposed.keys().copied().collect(),
            Self::IngressAlone => BTreeSet::new(),
            Self::Broken { ports, .. } => ports.clone(),
        }
    }
}
