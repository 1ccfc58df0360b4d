//! The relevant parts of objects, indexed by their relations: slices by Service.
//!
//! It keeps the last valid version of each object. It knows nothing of looks.

use std::collections::{BTreeMap, BTreeSet};

use trueup_capabilities::bindings::kube::types::Node;
use trueup_sources::{Kind, Object, ObjectRef};
use trueup_work::objects::Id;

use super::parts::{Input, Part};
use super::pod::Pod;
use super::service::object_id;
use super::slice::{Slice, united};
use super::{Interfaces, node, service, unhonoured};
use crate::node::guests::nodesync::Change;
use crate::node::guests::service::{Event, LocalPod, Service};
use crate::notes::Remarks;
use crate::slices::{Slices, service_of};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    /// Every object except slices that are part of the input. `None`: it exists, but is not part of the input.
    objects: BTreeMap<ObjectRef, Option<Fact>>,
    slices: Slices<Slice>,
}

/// The relevant part of an object.
#[derive(Clone, Debug, PartialEq)]
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
        self.objects.len() + self.slices.len()
    }

    pub(super) fn has(&self, reference: &ObjectRef) -> bool {
        let is_slice = || reference.kind == Kind::EndpointSlice;
        self.objects.contains_key(reference) || (is_slice() && self.slices.service_of(&Id::from(reference)).is_some())
    }

    /// The relevant part of an object that is no slice. `None` if it is not part of the input.
    pub(super) fn fact(&self, reference: &ObjectRef) -> Option<&Fact> {
        self.objects.get(reference)?.as_ref()
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
        match fact {
            Some(Fact::Slice(service, slice)) => self.slices.insert(Id::from(reference), service, slice),
            fact => _ = self.objects.insert(reference.clone(), fact),
        }
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, reference: &ObjectRef) {
        self.objects.remove(reference);
        if reference.kind == Kind::EndpointSlice {
            self.slices.remove(&Id::from(reference));
        }
    }

    /// What the guests receive about a part.
    pub(super) fn input(&self, part: &Part, interfaces: &Interfaces) -> Input {
        let event = match part {
            Part::Service(id) => match self.fact(&id.of_kind(Kind::Service)) {
                Some(Fact::Service(service)) => Event::ServicePut(service.clone()),
                _ => Event::ServiceDeleted(object_id(id)),
            },
            Part::Endpoints(id) => match self.slices.of(id) {
                Some(slices) => Event::EndpointsPut(united(id, slices.values())),
                None => Event::EndpointsDeleted(object_id(id)),
            },
            Part::Pod(id) => match self.fact(&id.of_kind(Kind::Pod)) {
                Some(Fact::Pod(pod)) => Event::PodAdded(local_pod(id, pod, interfaces)),
                _ => Event::PodDeleted(object_id(id)),
            },
            Part::Node(name) => {
                return Input::Nodesync(match self.fact(&ObjectRef::new(Kind::Node, "", name)) {
                    Some(Fact::Node(node)) => Change::KubeNodePut(node.clone()),
                    _ => Change::KubeNodeDeleted(name.clone()),
                });
            }
        };
        Input::Service(event)
    }

    /// What is part of the input, except slices, by kind and id.
    pub(super) fn facts(&self) -> impl Iterator<Item = (&ObjectRef, &Fact)> {
        self.objects
            .iter()
            .filter_map(|(reference, fact)| Some((reference, fact.as_ref()?)))
    }

    /// The slices of all Services that have any, by id. The Service itself may not exist.
    pub(super) fn slices(&self) -> impl Iterator<Item = (&Id, &BTreeMap<String, Slice>)> {
        self.slices.all()
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
