//! Translates Kubernetes objects into the input of the guest `neg`: its settings, and the desired endpoints of NEGs.
//!
//! Pure and incremental: the cost of a change depends on the keys it affects, not on the total. This module does not
//! know instances, operations or the current content of NEGs.
//!
//! ```text
//! Service (annotation) --> exposed ports --+
//! EndpointSlices --> endpoints of pods ----+--> one desired state for each (Service, port)
//! Nodes --> instance, zone, subnet --------+
//! ```

mod annotation;
mod endpoints;
mod index;
mod targets;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use trueup_base::text::hex;
use trueup_capabilities::neg::EndpointGroup;
use trueup_config::{NegAdapter as Settings, RESOURCE_NAME_MAX};
use trueup_work::objects::Id as ServiceName;

pub(crate) use targets::Targets;

/// A port of a Service: the key of this world. It has one instance, and one NEG for each zone and subnet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The Service.
    pub(crate) service: ServiceName,
    /// The number of the Service's port.
    pub(crate) port: u16,
}

impl fmt::Display for Key {
    /// `shop/web/80`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.port)
    }
}

impl FromStr for Key {
    type Err = String;

    /// Parses that text.
    fn from_str(text: &str) -> Result<Self, String> {
        let read = |(service, port): (&str, &str)| {
            let port = annotation::port_number(port)?;
            Some(Self::of(&service.parse().ok()?, port))
        };
        let key = text.rsplit_once('/').and_then(read);
        key.ok_or_else(|| format!("key `{text}`: must be NAMESPACE/SERVICE/PORT, such as `shop/web/80`"))
    }
}

impl Key {
    /// The key of this port of a Service.
    pub(super) fn of(service: &ServiceName, port: u16) -> Self {
        Self {
            service: service.clone(),
            port,
        }
    }
}

/// The desired state of one key: what a turn is to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Desired {
    /// [`NEG_NAMES`](trueup_config::NEG_NAMES) and [`ZONES`](trueup_config::ZONES), which override the configuration's
    /// settings. If they change, the host reopens the instance with its state.
    pub(crate) settings: Map<String, Value>,
    /// The argument of `syncer.sync`: ascending, without duplicate locations or empty groups.
    pub(crate) target: Vec<EndpointGroup>,
    /// The key is no longer desired.
    pub(crate) is_gone: bool,
}

impl Desired {
    /// The number of endpoints.
    pub(crate) fn endpoints(&self) -> u64 {
        self.target.iter().map(|group| group.endpoints.len() as u64).sum()
    }
}

/// The past and present locations of Nodes. Zones and subnets are only added, so that the host still finds endpoints in
/// a NEG after its last Node is gone. The caller keeps this across restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Locations {
    /// Zones of Nodes.
    pub(crate) zones: BTreeSet<String>,
    /// Subnets of Nodes.
    pub(crate) subnets: BTreeSet<String>,
}

/// The Kubernetes label of a Node that names its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The parts of a Node that are relevant to NEGs: a Compute Engine instance in a zone and a subnet. They stay equal
/// while a Node only reports its heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    /// The instance's name, by which a NEG knows it.
    instance: String,
    /// `None` if it has no such label.
    zone: Option<String>,
    /// `None` if neither a label nor the configuration names one.
    subnet: Option<String>,
}

impl Facts {
    fn of(name: &str, node: &Node, settings: &Settings) -> Self {
        let labels = node.metadata.labels.as_ref();
        let label = |name: &str| labels?.get(name).filter(|value| !value.is_empty()).cloned();
        let subnet = settings.subnet_label.as_deref().and_then(label);
        Self {
            instance: instance(node).unwrap_or(name).to_owned(),
            zone: label(ZONE_LABEL),
            subnet: subnet.or_else(|| settings.subnet.clone()),
        }
    }
}

/// The last part of `gce://PROJECT/ZONE/INSTANCE`.
fn instance(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref()?;
    let mut parts = id.strip_prefix("gce://")?.split('/');
    let _project = parts.next()?;
    let _zone = parts.next()?;
    let instance = parts.next()?;
    (parts.next().is_none() && !instance.is_empty()).then_some(instance)
}

/// The number of hex digits of the hash in a generated name: 80 bits, so that the names of any two Services in any
/// clusters differ.
const MADE_DIGITS: usize = 20;

/// The number of hex digits that distinguish the subnets of a name: a region has some dozen.
const SUBNET_DIGITS: usize = 6;

/// The name of a NEG without a name in the annotation: `trueup-` and the first 20 hex digits of the SHA-256 of cluster,
/// namespace, Service and port, each preceded by its length (8 bytes, big-endian). `claims.rs` detects two keys with
/// the same name.
fn made_name(cluster: &str, key: &Key) -> String {
    let port = key.port.to_string();
    let mut hash = Sha256::new();
    for part in [cluster, &key.service.namespace, &key.service.name, &port] {
        // The lengths make the encoding of the parts unambiguous.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("trueup-{:.MADE_DIGITS$}", hex(&hash.finalize()))
}

/// The name in a subnet other than the default: `NAME-` and the first 6 hex digits of the SHA-256 of the subnet's name.
/// NAME is cut so that the result has at most 63 characters.
fn name_in_subnet(name: &str, subnet: &str) -> String {
    let room = RESOURCE_NAME_MAX - SUBNET_DIGITS - 1;
    let cut = name.get(..room).unwrap_or(name);
    format!("{cut}-{:.SUBNET_DIGITS$}", hex(&Sha256::digest(subnet)))
}

#[cfg(test)]
mod tests;
