//! The relevant parts of objects, indexed by their relations: slices by Service.
//!
//! It keeps the last valid version of each object. It knows nothing of looks.

use std::collections::{BTreeMap, BTreeSet};

use trueup_capabilities::bindings::kube::types::Node;
use trueup_sources::{Kind, Object, ObjectRef};
use trueup_work::objects::Id;

use super::notes::Remarks;
use super::parts::{Input, Part};
use super::pod::Pod;
use super::service::object_id;
use super::slice::{Slice, united};
use super::{Interfaces, node, service, unhonoured};
use crate::node::guests::nodesync::Change;
use crate::node::guests::service::{Event, LocalPod, Service};
use crate::slices::{Slices, service_of};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    services: BTreeMap<Id, Service>,
    slices: Slices<Slice>,
    pods: BTreeMap<Id, Pod>,
    nodes: BTreeMap<String, Node>,
    /// Objects that exist but are not part of the input.
    unused: BTreeSet<ObjectRef>,
}

/// The relevant part of an object.
#[derive(Debug)]
pub(super) enum Fact {
    Service(Service),
    /// A slice of the Service with that name.
    Slice(Id, Slice),
    Pod(Pod),
    Node(Node),
}

/// The result of reading an object.
#[derive(Debug)]
pub(super) struct Reading {
    /// `Ok(None)`: the object is not part of the input. `Err`: it is invalid, and its previous version stays in use.
    pub(super) fact: Result<Option<Fact>, ()>,
    pub(super) remarks: Remarks,
    /// The Service that it is about, if any.
    pub(super) service: Option<Id>,
}

impl Reading {
    pub(super) fn of(reference: &ObjectRef, object: &Object, node_name: &str, interfaces: &Interfaces) -> Self {
        let id = Id::from(reference);
        match object {
            Object::Service(service) => {
                let translated = service::translated(&id, service);
                let used = translated.map(|(service, remarks)| (Some(Fact::Service(service)), remarks));
                Self::from(used, &format!("service `{id}`"), id)
            }
            Object::EndpointSlice(slice) => {
                let Some(service) = service_of(&id, slice) else {
                    return Self::unused();
                };
                let unhonoured = unhonoured::of_slice(&service, slice);
                let used = Slice::read(&id, slice).map(|(slice, mut notes)| {
                    notes.extend(unhonoured);
                    (slice.map(|slice| Fact::Slice(service.clone(), slice)), notes.into())
                });
                Self::from(used, &format!("endpointslice `{id}`"), service)
            }
            Object::Pod(pod) => match Pod::read(pod, node_name) {
                Some(pod) => Self {
                    remarks: BTreeSet::from_iter(interfaces.of(&id, &pod).err()).into(),
                    fact: Ok(Some(Fact::Pod(pod))),
                    service: None,
                },
                None => Self::unused(),
            },
            Object::Node(node) => Self {
                fact: Ok(Some(Fact::Node(node::translated(&reference.name, node)))),
                remarks: Remarks::default(),
                service: None,
            },
        }
    }

    fn unused() -> Self {
        Self {
            fact: Ok(None),
            remarks: Remarks::default(),
            service: None,
        }
    }

    fn from(used: Result<(Option<Fact>, Remarks), String>, who: &str, service: Id) -> Self {
        let (fact, remarks) = match used {
            Ok((fact, remarks)) => (Ok(fact), remarks),
            Err(cause) => {
                let problems = [format!("{who}: {cause}; what was known of it stays")].into();
                let remarks = Remarks {
                    problems,
                    ..Remarks::default()
                };
                (Err(()), remarks)
            }
        };
        Self {
            fact,
            remarks,
            service: Some(service),
        }
    }
}

impl Index {
    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.services.len() + self.slices.len() + self.pods.len() + self.nodes.len() + self.unused.len()
    }

    pub(super) fn has(&self, reference: &ObjectRef) -> bool {
        let id = || Id::from(reference);
        let is_used = match reference.kind {
            Kind::Service => self.services.contains_key(&id()),
            Kind::EndpointSlice => self.slices.service_of(&id()).is_some(),
            Kind::Pod => self.pods.contains_key(&id()),
            Kind::Node => self.nodes.contains_key(&reference.name),
        };
        is_used || self.unused.contains(reference)
    }

    pub(super) fn has_service(&self, id: &Id) -> bool {
        self.services.contains_key(id)
    }

    /// The parts that an object affects, now and with the new `fact`.
    pub(super) fn parts(&self, reference: &ObjectRef, fact: Option<&Fact>) -> BTreeSet<Part> {
        let id = Id::from(reference);
        match reference.kind {
            Kind::Service => [Part::Service(id)].into(),
            Kind::Pod => [Part::Pod(id)].into(),
            Kind::Node => [Part::Node(reference.name.clone())].into(),
            Kind::EndpointSlice => {
                let now = match fact {
                    Some(Fact::Slice(service, _)) => Some(service),
                    _ => None,
                };
                let services = self.slices.service_of(&id).into_iter().chain(now);
                services.cloned().map(Part::Endpoints).collect()
            }
        }
    }

    /// An object is new or changed.
    pub(super) fn put(&mut self, reference: &ObjectRef, fact: Option<Fact>) {
        self.remove(reference);
        let id = Id::from(reference);
        match fact {
            Some(Fact::Service(service)) => _ = self.services.insert(id, service),
            Some(Fact::Pod(pod)) => _ = self.pods.insert(id, pod),
            Some(Fact::Node(node)) => _ = self.nodes.insert(reference.name.clone(), node),
            Some(Fact::Slice(service, slice)) => self.slices.insert(id, service, slice),
            None => _ = self.unused.insert(reference.clone()),
        }
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, reference: &ObjectRef) {
        self.unused.remove(reference);
        let id = Id::from(reference);
        match reference.kind {
            Kind::Service => _ = self.services.remove(&id),
            Kind::Pod => _ = self.pods.remove(&id),
            Kind::Node => _ = self.nodes.remove(&reference.name),
            Kind::EndpointSlice => _ = self.slices.remove(&id),
        }
    }

    /// What the guests receive about a part.
    pub(super) fn input(&self, part: &Part, interfaces: &Interfaces) -> Input {
        let event = match part {
            Part::Service(id) => match self.services.get(id) {
                Some(service) => Event::ServicePut(service.clone()),
                None => Event::ServiceDeleted(object_id(id)),
            },
            Part::Endpoints(id) => match self.slices.of(id) {
                Some(slices) => Event::EndpointsPut(united(id, slices.values())),
                None => Event::EndpointsDeleted(object_id(id)),
            },
            Part::Pod(id) => match self.pods.get(id) {
                Some(pod) => Event::PodAdded(local_pod(id, pod, interfaces)),
                None => Event::PodDeleted(object_id(id)),
            },
            Part::Node(name) => {
                return Input::Nodesync(match self.nodes.get(name) {
                    Some(node) => Change::KubeNodePut(node.clone()),
                    None => Change::KubeNodeDeleted(name.clone()),
                });
            }
        };
        Input::Service(event)
    }

    /// All Services, by id.
    pub(super) fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// The slices of all Services that have any, by id. The Service itself may not exist.
    pub(super) fn slices(&self) -> impl Iterator<Item = (&Id, &BTreeMap<String, Slice>)> {
        self.slices.all()
    }

    /// All Nodes, by name.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// All pods of this node, by id.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&Id, &Pod)> {
        self.pods.iter()
    }
}

/// A pod of this node, with its interface if known.
pub(super) fn local_pod(id: &Id, pod: &Pod, interfaces: &Interfaces) -> LocalPod {
    LocalPod {
        id: object_id(id),
        ip: pod.ip.clone(),
        interface_name: interfaces.of(id, pod).unwrap_or_default(),
    }
}
