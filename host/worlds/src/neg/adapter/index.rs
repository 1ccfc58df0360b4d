//! The relevant parts of objects, indexed by their relations: slices by Service, Services by Node.
//!
//! It keeps only the relevant parts of Services and Nodes, and shares slices with the source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use trueup_config::NegAdapter as Settings;
use trueup_sources::{Kind, Object, ObjectRef};
use trueup_work::objects::{Id, Id as ServiceName};

use super::annotation::{Asked, asked};
use super::{Facts, Key, endpoints};
use crate::slices::{Slices, service_of};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    /// Every Service, and its request.
    services: BTreeMap<ServiceName, Option<Asked>>,
    slices: Slices<Arc<EndpointSlice>>,
    /// The slices that name no Service.
    unlabelled: BTreeSet<Id>,
    pub(super) nodes: BTreeMap<String, Facts>,
    /// For each Node, the Services with ready endpoints on it, and the number of their slices. The Node itself may not
    /// exist.
    on_node: BTreeMap<String, BTreeMap<ServiceName, usize>>,
}

/// What a change affects.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Keys whose desired state may have changed.
    pub(super) keys: BTreeSet<Key>,
    /// Services whose notes may have changed.
    pub(super) services: BTreeSet<ServiceName>,
    /// Nodes whose notes may have changed.
    pub(super) nodes: BTreeSet<String>,
}

impl Touched {
    pub(super) fn extend(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.services.extend(other.services);
        self.nodes.extend(other.nodes);
    }
}

impl Index {
    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.services.len() + self.slices.len() + self.unlabelled.len() + self.nodes.len()
    }

    pub(super) fn has(&self, reference: &ObjectRef) -> bool {
        match reference.kind {
            Kind::Service => self.services.contains_key(&ServiceName::from(reference)),
            Kind::EndpointSlice => {
                let id = Id::from(reference);
                self.slices.service_of(&id).is_some() || self.unlabelled.contains(&id)
            }
            Kind::Node => self.nodes.contains_key(&reference.name),
            Kind::Pod => false,
        }
    }

    /// An object is new or changed.
    pub(super) fn put(&mut self, reference: &ObjectRef, object: &Object, settings: &Settings) -> Touched {
        match object {
            Object::Service(service) => {
                let name = ServiceName::from(reference);
                let now = asked(&name, service);
                let was = self.services.insert(name.clone(), now.clone()).flatten();
                self.moved(&name, was.as_ref(), now.as_ref())
            }
            Object::EndpointSlice(slice) => self.put_slice(Id::from(reference), slice),
            Object::Node(node) => {
                let name = &reference.name;
                let facts = Facts::of(name, node, settings);
                match self.nodes.insert(name.clone(), facts.clone()) {
                    Some(was) if was == facts => Touched::default(),
                    _ => self.on(name),
                }
            }
            // Slices contain everything that matters about a Pod here.
            Object::Pod(_) => Touched::default(),
        }
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, reference: &ObjectRef) -> Touched {
        match reference.kind {
            Kind::Service => {
                let name = ServiceName::from(reference);
                let was = self.services.remove(&name).flatten();
                self.moved(&name, was.as_ref(), None)
            }
            Kind::EndpointSlice => self.take_slice(&Id::from(reference)),
            Kind::Node => match self.nodes.remove(&reference.name) {
                Some(_) => self.on(&reference.name),
                None => Touched::default(),
            },
            Kind::Pod => Touched::default(),
        }
    }

    /// The request of a Service changed.
    fn moved(&self, name: &ServiceName, was: Option<&Asked>, now: Option<&Asked>) -> Touched {
        if was == now {
            return Touched::default();
        }
        let ports = was.into_iter().chain(now).flat_map(Asked::ports);
        let nodes = self.slices(name).flat_map(|(_, slice)| endpoints::nodes(slice));
        Touched {
            keys: ports.map(|port| Key::of(name, port)).collect(),
            services: [name.clone()].into(),
            nodes: nodes.map(str::to_owned).collect(),
        }
    }

    fn put_slice(&mut self, id: Id, slice: &Arc<EndpointSlice>) -> Touched {
        let mut touched = self.take_slice(&id);
        let Some(service) = service_of(&id, slice) else {
            self.unlabelled.insert(id);
            return touched;
        };
        for node in endpoints::nodes(slice) {
            let on_node = self.on_node.entry(node.to_owned()).or_default();
            *on_node.entry(service.clone()).or_default() += 1;
        }
        touched.extend(self.of_slice(&service, slice));
        self.slices.insert(id, service, Arc::clone(slice));
        touched
    }

    fn take_slice(&mut self, id: &Id) -> Touched {
        self.unlabelled.remove(id);
        let Some((service, slice)) = self.slices.remove(id) else {
            return Touched::default();
        };
        for node in endpoints::nodes(&slice) {
            let Some(on_node) = self.on_node.get_mut(node) else {
                continue;
            };
            if let Some(slices) = on_node.get_mut(&service) {
                *slices -= 1;
                if *slices == 0 {
                    on_node.remove(&service);
                }
            }
            if on_node.is_empty() {
                self.on_node.remove(node);
            }
        }
        self.of_slice(&service, &slice)
    }

    fn of_slice(&self, service: &ServiceName, slice: &EndpointSlice) -> Touched {
        Touched {
            keys: self.keys_of(service).into_iter().collect(),
            services: [service.clone()].into(),
            nodes: endpoints::nodes(slice).into_iter().map(str::to_owned).collect(),
        }
    }

    fn on(&self, node: &str) -> Touched {
        Touched {
            keys: self.keys_on(node).collect(),
            services: BTreeSet::new(),
            nodes: [node.to_owned()].into(),
        }
    }

    /// The request of a Service. `None` if it has none or does not exist.
    pub(super) fn asked(&self, service: &ServiceName) -> Option<&Asked> {
        self.services.get(service)?.as_ref()
    }

    /// The slices of a Service, by name.
    pub(super) fn slices(&self, service: &ServiceName) -> impl Iterator<Item = (&String, &Arc<EndpointSlice>)> {
        self.slices.of(service).into_iter().flatten()
    }

    pub(super) fn services_on(&self, node: &str) -> impl Iterator<Item = &ServiceName> {
        self.on_node.get(node).into_iter().flat_map(BTreeMap::keys)
    }

    pub(super) fn keys_on(&self, node: &str) -> impl Iterator<Item = Key> {
        self.services_on(node).flat_map(|service| self.keys_of(service))
    }

    pub(super) fn is_on(&self, service: &ServiceName, node: &str) -> bool {
        let on_node = self.on_node.get(node);
        on_node.is_some_and(|services| services.contains_key(service))
    }

    pub(super) fn keys_of(&self, service: &ServiceName) -> Vec<Key> {
        let ports = self.asked(service).into_iter().flat_map(Asked::ports);
        ports.map(|port| Key::of(service, port)).collect()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.services.keys().flat_map(|service| self.keys_of(service))
    }

    pub(super) fn keys_in(&self, namespace: &str) -> impl Iterator<Item = Key> {
        let first = ServiceName {
            namespace: namespace.to_owned(),
            name: String::new(),
        };
        let services = self.services.range(first..).map(|(service, _)| service);
        let services = services.take_while(move |service| service.namespace == namespace);
        services.flat_map(|service| self.keys_of(service))
    }

    /// Everything that may need a note.
    pub(super) fn everything(&self) -> Touched {
        Touched {
            keys: BTreeSet::new(),
            services: self.services.keys().cloned().collect(),
            nodes: self.on_node.keys().cloned().collect(),
        }
    }
}
