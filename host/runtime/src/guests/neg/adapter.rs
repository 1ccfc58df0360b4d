//! Translates Kubernetes objects into the input of the guest `neg`: its settings, and the desired endpoints of NEGs.
//!
//! Pure and incremental: the cost of a change depends on the keys it affects, not on the total. This module does not
//! know instances, operations or the current content of NEGs.
//!
//! ```text
//! Service (annotation) --> exposed ports --+
//! EndpointSlices --> endpoints of pods ----+--> one wish for each (Service, port)
//! Nodes --> instance, zone, subnet --------+
//! ```

mod annotation;
mod claims;
mod endpoints;
mod index;
mod names;
mod node;
mod notes;
mod targets;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trueup_capabilities::neg::{EndpointGroup, NegRef};

use trueup_sources::{Kind, ObjectRef};

pub(crate) use crate::guests::objects::Id as ServiceName;
pub use annotation::ANNOTATION;
pub use names::{made_name, name_in_subnet};
pub use targets::Targets;
pub use trueup_config::{NEG_NAMES, NegAdapter as Settings, ZONES, is_resource_name};

/// The Kubernetes label of a Node that names its zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// A port of a Service. It has one instance, and one NEG for each zone and subnet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub name: String,
    /// The number of the Service's port.
    pub port: u16,
}

impl fmt::Display for Key {
    /// `shop/web/80`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.name, self.port)
    }
}

impl FromStr for Key {
    type Err = String;

    /// Parses that text.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let key = match parts.as_slice() {
            [namespace, name, port] if !namespace.is_empty() && !name.is_empty() => {
                annotation::port_number(port).map(|port| Self {
                    namespace: (*namespace).to_owned(),
                    name: (*name).to_owned(),
                    port,
                })
            }
            _ => None,
        };
        key.ok_or_else(|| format!("key `{text}`: must be NAMESPACE/SERVICE/PORT, such as `shop/web/80`"))
    }
}

impl ServiceName {
    fn key(&self, port: u16) -> Key {
        Key {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            port,
        }
    }
}

impl Key {
    fn service(&self) -> ServiceName {
        ServiceName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

/// The desired state of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// [`NEG_NAMES`] and [`ZONES`], which override the configuration's settings. If they change, the host reopens the
    /// instance with its state.
    pub settings: Map<String, Value>,
    /// The argument of `syncer.sync`: ascending, without duplicate locations or empty groups.
    pub target: Vec<EndpointGroup>,
    /// Every NEG that the instance reads, ascending: for status, and to check the grants.
    pub negs: Vec<NegRef>,
    /// Ready endpoints that are in no NEG because of their Node or address. Notes say why.
    pub left_out: usize,
}

/// The past and present locations of Nodes. Zones and subnets are only added, so that the host still finds endpoints in
/// a NEG after its last Node is gone. The caller keeps this across restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Places {
    /// Zones of Nodes.
    #[serde(default)]
    pub zones: BTreeSet<String>,
    /// Subnets of Nodes.
    #[serde(default)]
    pub subnets: BTreeSet<String>,
}

/// The effect of one look at the source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changed {
    /// Keys whose desired state may have changed, including deleted ones. For keys that are not listed, see
    /// [`Changed::affects`].
    pub affected: BTreeSet<Key>,
    /// Which objects affect which keys. Objects without affected keys are left out, except Services whose request
    /// changed.
    pub seen: Vec<Concern>,
    /// New notes for the operator, one line each. A note that disappears and returns is reported again.
    pub notes: Vec<String>,
    /// The source contains no object, but there is something to lose: it is treated as unavailable.
    pub is_empty: bool,
    /// The source contains no Node any more, and there are keys.
    pub no_nodes: bool,
    /// This look is complete and the previous one was not: missing objects are gone.
    pub completed: bool,
    /// [`Targets::places`] has grown.
    pub more_places: bool,
}

impl Changed {
    /// Whether the desired state of `key` may have changed. If a Service's request changed, that includes every known
    /// key of it, even one that it named long ago: while its annotation is invalid, no key of it is gone. After a look
    /// is complete again, it includes every key: missing objects are gone.
    pub fn affects(&self, key: &Key) -> bool {
        let is_its_service = |concern: &Concern| {
            let ObjectRef { kind, namespace, name } = &concern.reference;
            *kind == Kind::Service && *namespace == key.namespace && *name == key.name
        };
        self.completed || self.affected.contains(key) || self.seen.iter().any(is_its_service)
    }
}

/// A changed object, and the keys that it affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concern {
    /// The object.
    pub reference: ObjectRef,
    /// The affected keys.
    pub keys: BTreeSet<Key>,
}

#[cfg(test)]
mod tests;
