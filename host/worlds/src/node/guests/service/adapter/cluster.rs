//! The guests' view of a cluster, updated look by look.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trueup_capabilities::bindings::kube::types::Node;
use trueup_capabilities::quota::Quotas;
use trueup_sources::{Batch, Kind, Object, ObjectRef, Showing};
use trueup_work::objects::Id;

use super::index::{Fact, Index, Input, Part, local_pod, read};
use super::slice::united;
use super::{Changes, Interfaces};
use crate::node::guests::service::{Endpoints, LocalPod, Service};
use crate::notes::{Notes, Remarks};

/// The complete input of the guests.
#[derive(Clone)]
pub struct Cluster {
    /// This node's name in Kubernetes: its pods are the local ones.
    node: String,
    /// The names of the pods' interfaces.
    interfaces: Interfaces,
    index: Index,
    notes: Notes,
    /// Objects that are missing from the source but may only be hidden: they are kept.
    held: BTreeSet<ObjectRef>,
    /// Whether a look was complete. From then on the guests receive changes.
    was_complete: bool,
    showing: Showing,
    /// What is rendered, and how much of it may be removed: large removals need an approval. `None`: no limit.
    pub(crate) quotas: Option<Arc<Quotas>>,
}

impl Cluster {
    /// Nothing is known yet. The source is a cluster (true) or a folder (false).
    pub(crate) fn new(node: &str, interfaces: Interfaces, is_cluster: bool) -> Self {
        Self {
            node: node.to_owned(),
            interfaces,
            index: Index::default(),
            notes: Notes::default(),
            held: BTreeSet::new(),
            was_complete: false,
            showing: Showing::new(is_cluster),
            quotas: None,
        }
    }

    /// Applies a look at the source.
    ///
    /// Objects that disappear in an incomplete look are kept until a complete one. Objects that disappear because they
    /// cannot be read are kept until they can be, or are gone. A source without any object, even at the start, is
    /// treated as unavailable: see [`Showing`].
    pub fn take_in(&mut self, batch: &Batch) -> Changes {
        // The parts that may change, as they were.
        let mut changes = Changes::default();
        let mut parts = BTreeMap::new();
        for change in &batch.changes {
            self.showing.see(change);
            match &change.now {
                Some(object) => {
                    self.held.remove(&change.reference);
                    self.put(&change.reference, object, &mut changes, &mut parts);
                }
                None if self.index.has(&change.reference) => _ = self.held.insert(change.reference.clone()),
                None => {}
            }
        }
        changes.is_empty = batch.complete && self.showing.hides_all(self.index.len() - self.held.len());
        let is_complete = batch.complete && !changes.is_empty && self.may_go(&batch.unreadable);
        if is_complete {
            for reference in std::mem::take(&mut self.held) {
                if batch.unreadable.contains(&reference) {
                    self.held.insert(reference);
                    continue;
                }
                self.touch(self.index.parts(&reference, None), &mut parts);
                self.index.remove(&reference);
                self.notes.remove(&reference);
            }
        }
        for (part, before) in parts {
            match self.index.input(&part, &self.interfaces) {
                now if now == before => {}
                Input::Service(event) => changes.events.push(event),
                Input::Nodesync(change) => changes.nodes.push(change),
            }
        }
        self.was_complete |= is_complete;
        changes
    }

    /// Whether there was a complete look: before that, the state is unknown.
    pub fn is_complete(&self) -> bool {
        self.was_complete
    }

    /// All Services, by id: for a resync.
    pub fn services(&self) -> Vec<Service> {
        let services = self.index.facts().filter_map(|(_, fact)| match fact {
            Fact::Service(service) => Some(service.clone()),
            _ => None,
        });
        services.collect()
    }

    /// The endpoints of all Services that have slices, by id: for a resync.
    pub fn endpoints(&self) -> Vec<Endpoints> {
        let all = self.index.slices.all();
        all.map(|(id, slices)| united(id, slices.values())).collect()
    }

    /// The pods of this node, by id: for a resync.
    pub fn local_pods(&self) -> Vec<LocalPod> {
        let pods = self.index.facts().filter_map(|(reference, fact)| match fact {
            Fact::Pod(pod) => Some(local_pod(&reference.into(), pod, &self.interfaces)),
            _ => None,
        });
        pods.collect()
    }

    /// All Nodes, by name: for a resync.
    pub fn kube_nodes(&self) -> Vec<Node> {
        let nodes = self.index.facts().filter_map(|(_, fact)| match fact {
            Fact::Node(node) => Some(node.clone()),
            _ => None,
        });
        nodes.collect()
    }

    /// The current notes, reported or not.
    pub fn notes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.notes.all()
    }

    /// Why objects are not rendered as requested.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.notes.problems()
    }

    /// Whether the Services that are missing from the source may be removed: all of them, or none. At the start of a
    /// folder source these are the Services of the previous process. What is missing from a cluster was deleted there
    /// meanwhile, and counts no longer.
    fn may_go(&self, unreadable: &BTreeSet<ObjectRef>) -> bool {
        let Some(quotas) = &self.quotas else { return true };
        let services = self.held.iter().filter(|reference| reference.kind == Kind::Service);
        let gone = services.filter(|reference| !unreadable.contains(reference));
        let mut gone: BTreeSet<String> = gone.map(|reference| Id::from(reference).to_string()).collect();
        if !self.was_complete {
            let fact = |id: Id| self.index.fact(&id.of_kind(Kind::Service));
            let missing = quotas.holdings.without(|key| key.parse().ok().and_then(fact).is_some());
            match self.showing.is_cluster() {
                true => missing.iter().for_each(|key| quotas.holdings.forget(key)),
                false => gone.extend(missing),
            }
        }
        quotas.holdings.let_go(&gone)
    }

    fn put(
        &mut self,
        reference: &ObjectRef,
        object: &Object,
        changes: &mut Changes,
        parts: &mut BTreeMap<Part, Input>,
    ) {
        let (read, service) = read(reference, object, &self.node, &self.interfaces);
        let (fact, remarks) = match read {
            Ok((fact, remarks)) => (Some(fact), remarks),
            Err(cause) => {
                let problems = [format!("{cause}; what was known of it stays")].into();
                let notes = BTreeSet::new();
                (None, Remarks { notes, problems })
            }
        };
        let new = self.notes.set(reference, remarks);
        if let Some(service) = service {
            let about = new.iter().map(|note| (service.clone(), note.clone()));
            changes.about.extend(about);
        }
        changes.notes.extend(new);
        if fact.is_none() && self.index.has(reference) {
            return;
        }
        let fact = fact.flatten();
        self.touch(self.index.parts(reference, fact.as_ref()), parts);
        if let (Some(Fact::Service(_)), Some(quotas)) = (&fact, &self.quotas) {
            let key = Id::from(reference).to_string();
            quotas.holdings.hold(&key, 1);
            quotas.holdings.done(&key);
        }
        self.index.put(reference, fact);
    }

    /// Marks parts that may change.
    fn touch(&self, touched: BTreeSet<Part>, parts: &mut BTreeMap<Part, Input>) {
        // Until the first complete look, the guests have received nothing.
        for part in touched.into_iter().filter(|_| self.was_complete) {
            let before = self.index.input(&part, &self.interfaces);
            parts.entry(part).or_insert(before);
        }
    }
}
