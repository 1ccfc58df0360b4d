//! The parts of the guests' input, and how a look changed them.

use std::collections::{BTreeMap, BTreeSet};

use trueup_capabilities::bindings::kube::types::Node;
use trueup_sources::ObjectRef;
use trueup_work::objects::Id;

use super::Told;
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

/// The parts that a look may have changed.
#[derive(Debug, Default)]
pub(super) struct Looked {
    parts: BTreeMap<Part, Before>,
    pub(super) notes: Vec<String>,
    pub(super) about: Vec<(Id, String)>,
}

#[derive(Debug)]
struct Before {
    /// `None` if it did not exist, or if the old value is not needed.
    was: Option<Translated>,
    because: BTreeSet<ObjectRef>,
}

impl Looked {
    /// Call this before an object changes a part.
    pub(super) fn touch(&mut self, part: Part, because: &ObjectRef, was: impl FnOnce(&Part) -> Option<Translated>) {
        let before = match self.parts.entry(part) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let was = was(new.key());
                new.insert(Before {
                    was,
                    because: BTreeSet::new(),
                })
            }
        };
        before.because.insert(because.clone());
    }

    /// The resulting changes.
    pub(super) fn differences(self, now: impl Fn(&Part) -> Option<Translated>) -> Told {
        let mut told = Told {
            notes: self.notes,
            about: self.about,
            ..Told::default()
        };
        let mut seen = BTreeSet::new();
        for (part, Before { was, because }) in self.parts {
            let now = now(&part);
            if was != now {
                told.add(part, now);
                seen.extend(because);
            }
        }
        told.seen = seen.into_iter().collect();
        told
    }

    /// The same if the caller sends everything at once.
    pub(super) fn objects(self) -> Told {
        let seen: BTreeSet<ObjectRef> = self.parts.into_values().flat_map(|before| before.because).collect();
        Told {
            notes: self.notes,
            about: self.about,
            seen: seen.into_iter().collect(),
            ..Told::default()
        }
    }
}

impl Told {
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
