//! The parts of the guests' input, and how a look changed them.

use std::collections::BTreeMap;

use trueup_capabilities::bindings::kube::types::Node;
use trueup_work::objects::Id;

use super::Changes;
use super::service::object_id;
use crate::node::guests::nodesync::Change;
use crate::node::guests::service::{Endpoints, Event, LocalPod, Service};

/// A part of the guests' input, in the order in which parts are sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Service(Id),
    /// All slices of a Service.
    Endpoints(Id),
    Pod(Id),
    Node(String),
}

/// A part in the form that the guests receive.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Translated {
    Service(Service),
    Endpoints(Endpoints),
    Pod(LocalPod),
    Node(Node),
}

/// What a look may have changed.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// The parts, as they were. `None`: a part did not exist, or what it was is not needed.
    pub(super) parts: BTreeMap<Part, Option<Translated>>,
    pub(super) notes: Vec<String>,
    pub(super) about: Vec<(Id, String)>,
}

impl Changes {
    /// Adds the parts that are not as they were.
    pub(super) fn add_differences(
        &mut self,
        parts: BTreeMap<Part, Option<Translated>>,
        now: impl Fn(&Part) -> Option<Translated>,
    ) {
        for (part, was) in parts {
            let now = now(&part);
            if was != now {
                self.add(part, now);
            }
        }
    }

    fn add(&mut self, part: Part, now: Option<Translated>) {
        let event = match (part, now) {
            (_, Some(Translated::Service(service))) => Event::ServicePut(service),
            (_, Some(Translated::Endpoints(endpoints))) => Event::EndpointsPut(endpoints),
            (_, Some(Translated::Pod(pod))) => Event::PodAdded(pod),
            (_, Some(Translated::Node(node))) => return self.nodes.push(Change::KubeNodePut(node)),
            (Part::Service(id), None) => Event::ServiceDeleted(object_id(&id)),
            (Part::Endpoints(id), None) => Event::EndpointsDeleted(object_id(&id)),
            (Part::Pod(id), None) => Event::PodDeleted(object_id(&id)),
            (Part::Node(name), None) => return self.nodes.push(Change::KubeNodeDeleted(name)),
        };
        self.events.push(event);
    }
}
