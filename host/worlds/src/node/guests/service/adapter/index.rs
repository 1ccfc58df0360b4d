//! The relevant parts of objects: how they are read, and their index by their relations, slices by Service.
//!
//! It keeps the last valid version of each object. It knows nothing of looks.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as k8s;
use trueup_capabilities::bindings::kube::types::{Node, NodeAddress, NodeAddressType};
use trueup_sources::{Kind, Object, ObjectRef};
use trueup_work::objects::Id;

use super::service::object_id;
use super::slice::{Slice, united};
use super::{Interfaces, service, unhonoured};
use crate::node::guests::nodesync::Change;
use crate::node::guests::service::{Event, LocalPod, Service};
use crate::notes::Remarks;
use crate::slices::{Slices, service_of};

/// A part of the guests' input, in the order in which parts are sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Service(Id),
    /// All slices of a Service.
    Endpoints(Id),
    Pod(Id),
    Node(String),
}

/// What a guest receives about a part: what it is, or that it is gone.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    Service(Event),
    Nodesync(Change),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    /// Every object except slices that are part of the input. `None`: it exists, but is not part of the input.
    objects: BTreeMap<ObjectRef, Option<Fact>>,
    pub(super) slices: Slices<Slice>,
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

/// The relevant part of an object, with remarks. `None`: the object is not part of the input.
///
/// # Errors
/// Why it is invalid.
type Read = Result<(Option<Fact>, Remarks), String>;

/// Reads an object. Returns the Service that it is about, too, if any.
pub(super) fn read(
    reference: &ObjectRef,
    object: &Object,
    node_name: &str,
    interfaces: &Interfaces,
) -> (Read, Option<Id>) {
    let id = Id::from(reference);
    match object {
        Object::Service(service) => {
            let read = service::translated(&id, service).map_err(|cause| format!("service `{id}`: {cause}"));
            let read = read.map(|(input, remarks)| (Some(Fact::Service(input)), remarks));
            (read, Some(id))
        }
        Object::EndpointSlice(object) => {
            let Some(service) = service_of(&id, object) else {
                return (Ok((None, Remarks::default())), None);
            };
            let read = Slice::read(&id, object).map_err(|cause| format!("endpointslice `{id}`: {cause}"));
            let read = read.map(|(slice, mut notes)| {
                notes.extend(unhonoured::of_slice(&service, object));
                (slice.map(|slice| Fact::Slice(service.clone(), slice)), notes.into())
            });
            (read, Some(service))
        }
        Object::Pod(pod) => {
            let pod = Pod::read(pod, node_name);
            let notes: BTreeSet<String> = pod.iter().filter_map(|pod| interfaces.of(&id, pod).err()).collect();
            (Ok((pod.map(Fact::Pod), notes.into())), None)
        }
        Object::Node(node) => {
            let node = Fact::Node(translated_node(&reference.name, node));
            (Ok((Some(node), Remarks::default())), None)
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
        let objects = self.objects.iter();
        objects.filter_map(|(reference, fact)| Some((reference, fact.as_ref()?)))
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

/// A pod of this node with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    /// Distinguishes it from other pods with the same name over time. Empty if it has none.
    pub(super) uid: String,
    ip: String,
    /// Whether it has no interface of its own.
    pub(super) is_on_host_network: bool,
}

impl Pod {
    /// `None` if it is on another node, has no address yet, or has ended. An ended pod keeps its address for a while,
    /// and another pod may already use it.
    fn read(pod: &k8s::Pod, node: &str) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let status = pod.status.as_ref()?;
        let is_here = spec.node_name.as_deref() == Some(node);
        let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let ip = status.pod_ip.as_ref().filter(|ip| !ip.is_empty())?;
        (is_here && !has_ended).then(|| Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            ip: ip.clone(),
            is_on_host_network: spec.host_network == Some(true),
        })
    }
}

/// The input for a Node, without addresses of types that are not part of Kubernetes.
fn translated_node(name: &str, node: &k8s::Node) -> Node {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_deref());
    let address = |of: &k8s::NodeAddress| {
        Some(NodeAddress {
            address_type: address_type(&of.type_)?,
            address: of.address.clone(),
        })
    };
    let spec = node.spec.as_ref();
    Node {
        name: name.to_owned(),
        addresses: addresses.unwrap_or_default().iter().filter_map(address).collect(),
        pod_cidr: spec.and_then(|spec| spec.pod_cidr.clone()).unwrap_or_default(),
    }
}

fn address_type(text: &str) -> Option<NodeAddressType> {
    match text {
        "InternalIP" => Some(NodeAddressType::InternalIp),
        "ExternalIP" => Some(NodeAddressType::ExternalIp),
        "Hostname" => Some(NodeAddressType::Hostname),
        "InternalDNS" => Some(NodeAddressType::InternalDns),
        "ExternalDNS" => Some(NodeAddressType::ExternalDns),
        _ => None,
    }
}
