//! From Kubernetes objects to what the guest `neg` is told: its settings, and the endpoints that shall be in NEGs.
//!
//! Pure, and incremental: what a change costs depends on whom it concerns, not on how much else there is. Knows nothing of
//! instances, operations or what is in a NEG now.
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

use crate::sources::{Kind, ObjectRef};

pub use annotation::ANNOTATION;
pub use names::{is_resource_name, made_name, name_in_subnet};
pub use targets::Targets;

/// The label of a Node that says which zone it is in. Kubernetes' own.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The label of an EndpointSlice that says of which Service it is. Kubernetes' own.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The setting of the guest that names NEGs by subnet: the adapter gives it, and the configuration may not.
pub const NEG_NAMES: &str = "neg_names";

/// The setting of the guest that lists zones: likewise.
pub const ZONES: &str = "zones";

/// How Services become wishes: the configuration's `[adapter.neg]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The cluster's name: a part of what made names of NEGs are made from.
    pub cluster: String,
    /// The subnet of Nodes that name none, and the one whose NEGs have the plain name. None: each Node names its own.
    #[serde(default)]
    pub subnet: Option<String>,
    /// The label by which Nodes name their subnet. None: all are in `subnet`.
    #[serde(default)]
    pub subnet_label: Option<String>,
    /// Zones that are looked into whether or not a Node is in them.
    #[serde(default)]
    pub zones: Vec<String>,
}

/// A port of a Service: what has one instance, and one NEG for each zone and subnet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub name: String,
    /// The Service's port, by number.
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

    /// Back from its text.
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

/// A Service by namespace and name. In order, its keys are neighbours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for ServiceName {
    /// `shop/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
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

/// What one key asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// [`NEG_NAMES`] and [`ZONES`], to be put over the configuration's settings. Where they are other ones than before, the
    /// instance is opened anew with its state.
    pub settings: Map<String, Value>,
    /// The argument of `syncer.sync`: ascending, no location twice and none without endpoints.
    pub target: Vec<EndpointGroup>,
    /// Every NEG that the instance looks at, ascending: for status, and for a look at the grants.
    pub negs: Vec<NegRef>,
    /// Endpoints that are ready and in no NEG, because of their Node or their address. Notes say why.
    pub left_out: usize,
}

/// Where Nodes are, and were: zones and subnets only come, so that what is left in a NEG where the last Node went is still
/// found. Kept over restarts by whoever runs the instances.
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

/// What a look at the source changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changed {
    /// Keys whose wish may be another one, those of which nobody wishes any more included. Of keys that are not named now:
    /// [`Changed::affects`].
    pub affected: BTreeSet<Key>,
    /// Which objects concern whom: those that concern nobody are left out, but for Services that ask for something else.
    pub seen: Vec<Concern>,
    /// What an operator should know and was not told yet: a line each. One that went and comes again is told again.
    pub notes: Vec<String>,
    /// The source holds no object at all, and there is something to lose: taken for one that is not there.
    pub is_empty: bool,
    /// It holds no Node any more, and there are keys.
    pub no_nodes: bool,
    /// The look is complete and the one before was not: what is missing is gone.
    pub completed: bool,
    /// [`Targets::places`] are more than before.
    pub more_places: bool,
}

impl Changed {
    /// Whether the wish of `key` may be another one. Of a Service that asks for something else that holds for every key
    /// that somebody knows of it, also one that it named long ago: while its annotation can't be used, no key of it is gone.
    /// And once a look is complete again, it holds for every key there is: what is missing is gone.
    pub fn affects(&self, key: &Key) -> bool {
        let is_its_service = |concern: &Concern| {
            let ObjectRef { kind, namespace, name } = &concern.reference;
            *kind == Kind::Service && *namespace == key.namespace && *name == key.name
        };
        self.completed || self.affected.contains(key) || self.seen.iter().any(is_its_service)
    }
}

/// An object that changed, and the keys that this concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concern {
    /// The object.
    pub reference: ObjectRef,
    /// Whom it concerns.
    pub keys: BTreeSet<Key>,
}

#[cfg(test)]
mod tests;
