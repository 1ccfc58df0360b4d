//! From Kubernetes objects to what the guests `service` and `nodesync` are told: Services, their endpoints, the pods of
//! this node, and Nodes.
//!
//! Pure, and incremental: what a change costs depends on the Service that it belongs to, not on how many others there are.
//! Knows nothing of node numbers, renderers or instances.
//!
//! ```text
//! Service ---------------------------> service ----+
//! EndpointSlices of one Service -----> endpoints --+--> events of `service`
//! Pods of this node, interfaces -----> local pod --+
//! Nodes -----------------------------> node ----------> changes of `nodesync`
//! ```
//!
//! *Fail-safe*: before a look at the source was complete, nothing is told. What is gone while something can't be read, or
//! is itself there and can't be read, stands as it was. An object that says what can't be is not taken in: what it said
//! before stands, and a note says why.
//!
//! *What is never told*: pods of other nodes and custom IP allocations. They matter to pods with several interfaces, and no
//! object of the Kubernetes API says which interfaces those are: a resync has neither.

mod cluster;
mod index;
mod interfaces;
mod node;
mod notes;
mod parts;
mod pod;
mod protocol;
mod service;
mod slice;
mod unhonoured;

use std::fmt;
use std::str::FromStr;

use crate::guests::nodesync::Change;
use crate::guests::service::{Event, ObjectId};
use crate::sources::ObjectRef;

pub use cluster::Cluster;
pub use interfaces::{INTERFACE_BYTES_MAX, Interfaces, Pattern, read_interfaces};

/// What the objects of a cluster are translated with: the configuration's `[adapter.node]` and `[adapter.service]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// This node's name, as in Kubernetes: its pods are the local ones.
    pub node: String,
    /// How the interfaces of pods are called.
    pub interfaces: Interfaces,
}

/// An object by namespace and name. In order, those of one namespace are neighbours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl fmt::Display for Id {
    /// `shop/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for Id {
    type Err = String;

    /// Back from its text.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(format!(
                "was `{}`, must be NAMESPACE/NAME, such as `shop/web-0`",
                text.escape_debug()
            )),
        }
    }
}

impl From<&Id> for ObjectId {
    fn from(id: &Id) -> Self {
        Self {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        }
    }
}

impl From<&ObjectRef> for Id {
    fn from(reference: &ObjectRef) -> Self {
        Self {
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
        }
    }
}

/// What a look at the source, or other names of interfaces, changed in what guests are told. Empty until the first complete
/// look: [`Cluster::services`] and its like are what a resync begins with, and from then on this leads from one to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// For `service`: Services by id, then endpoints, then pods; one event for each that differs.
    pub events: Vec<Event>,
    /// For `nodesync`: Nodes by name, one change for each that differs.
    pub nodes: Vec<Change>,
    /// What an operator should know and was not told yet: a line each. One that went and comes again is told again.
    pub notes: Vec<String>,
    /// Those of the notes that are about one Service, which it is.
    pub about: Vec<(Id, String)>,
    /// The objects because of which something differs. Of looks up to the first complete one: all of which something is told.
    pub seen: Vec<ObjectRef>,
    /// The source holds no object any more, where there were some: taken for one that is not there. Nothing is deleted.
    pub is_empty: bool,
}

#[cfg(test)]
mod tests;
