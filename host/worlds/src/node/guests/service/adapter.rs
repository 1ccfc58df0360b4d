//! Translates Kubernetes objects into the input of the guests `service` and `nodesync`: Services, their endpoints, the
//! pods of this node, and Nodes.
//!
//! Pure and incremental: the cost of a change depends on the affected Service, not on the number of Services. This
//! module does not know node numbers, renderers or instances.
//!
//! ```text
//! Service ---------------------------> service ----+
//! EndpointSlices of one Service -----> endpoints --+--> events of `service`
//! Pods of this node, interfaces -----> local pod --+
//! Nodes -----------------------------> node ----------> changes of `nodesync`
//! ```
//!
//! *Fail-safe*: until the first complete look, the guests receive nothing. While something cannot be read, a deleted
//! object stays as it was, and so does an object that itself cannot be read. An invalid object is not used: its
//! previous version stays in use, and a note says why.
//!
//! *Never sent*: pods of other nodes and custom IP allocations. They matter for pods with several interfaces, but no
//! object of the Kubernetes API names those interfaces. A resync contains neither.

mod cluster;
mod index;
mod interfaces;
mod service;
mod slice;
mod unhonoured;

use trueup_work::objects::Id;

use crate::node::guests::nodesync::Change;
use crate::node::guests::service::Event;

pub use cluster::Cluster;
pub use interfaces::{Interfaces, Pattern, read_interfaces};

/// How a look at the source changed the guests' input. Empty until the first complete look: a
/// resync begins with [`Cluster::services`] and its siblings, and from then on these events lead from one state to the
/// next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// For `service`: Services by id, then endpoints, then pods; one event for each change.
    pub events: Vec<Event>,
    /// For `nodesync`: Nodes by name; one entry for each change.
    pub nodes: Vec<Change>,
    /// New notes for the operator, one line each. A note that disappears and returns is reported again.
    pub notes: Vec<String>,
    /// The notes about a single Service, with that Service.
    pub about: Vec<(Id, String)>,
    /// The source contains no object any more, but did before: it is treated as unavailable, and nothing is deleted.
    pub is_empty: bool,
}

#[cfg(test)]
mod tests;
