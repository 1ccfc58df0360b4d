//! The service processor's inputs, object by object: the effects of events, and all of them as one state.

use std::collections::BTreeMap;

use trueup_worlds::node::guests::nodesync::Node;
use trueup_worlds::node::guests::service::{
    CustomIpAllocation, Endpoints, Event, LocalPod, NodeContext, ObjectId, Service, State,
};

/// Namespace and name: the order of objects.
pub(crate) type Id = (String, String);

pub(crate) fn id_of(id: &ObjectId) -> Id {
    (id.namespace.clone(), id.name.clone())
}

/// The inputs; see the module.
#[derive(Debug, Clone)]
pub(crate) struct Inputs {
    pub(crate) context: NodeContext,
    pub(crate) nodes: Vec<Node>,
    pub(crate) local_pods: BTreeMap<Id, LocalPod>,
    pub(crate) remote_pods: BTreeMap<Id, LocalPod>,
    pub(crate) endpoints: BTreeMap<Id, Endpoints>,
    pub(crate) services: BTreeMap<Id, Service>,
    pub(crate) allocations: BTreeMap<Id, CustomIpAllocation>,
}

/// Of a duplicate id the last counts.
fn by_id<T: Clone>(list: &[T], id: impl Fn(&T) -> &ObjectId) -> BTreeMap<Id, T> {
    list.iter().map(|it| (id_of(id(it)), it.clone())).collect()
}

impl Inputs {
    pub(crate) fn of(state: &State) -> Self {
        Self {
            context: state.context.clone(),
            nodes: state.nodes.clone(),
            local_pods: by_id(&state.local_pods, |it| &it.id),
            remote_pods: by_id(&state.remote_pods, |it| &it.id),
            endpoints: by_id(&state.endpoints, |it| &it.id),
            services: by_id(&state.services, |it| &it.id),
            allocations: by_id(&state.ip_allocations, |it| &it.pod),
        }
    }

    /// The same, each object once.
    pub(crate) fn state(&self) -> State {
        State {
            context: self.context.clone(),
            nodes: self.nodes.clone(),
            local_pods: self.local_pods.values().cloned().collect(),
            remote_pods: self.remote_pods.values().cloned().collect(),
            endpoints: self.endpoints.values().cloned().collect(),
            services: self.services.values().cloned().collect(),
            ip_allocations: self.allocations.values().cloned().collect(),
        }
    }

    pub(crate) fn take(&mut self, event: &Event) {
        match event.clone() {
            Event::ServicePut(it) => _ = self.services.insert(id_of(&it.id), it),
            Event::ServiceDeleted(id) => _ = self.services.remove(&id_of(&id)),
            Event::EndpointsPut(it) => _ = self.endpoints.insert(id_of(&it.id), it),
            Event::EndpointsDeleted(id) => _ = self.endpoints.remove(&id_of(&id)),
            Event::IpAllocationPut(it) => _ = self.allocations.insert(id_of(&it.pod), it),
            Event::PodAdded(it) => _ = self.local_pods.insert(id_of(&it.id), it),
            Event::RemotePodPut(it) => _ = self.remote_pods.insert(id_of(&it.id), it),
            Event::Nodes(nodes) => self.nodes = nodes,
            // An allocation goes with the last pod of its id.
            Event::PodDeleted(id) => {
                self.local_pods.remove(&id_of(&id));
                self.drop_allocation_without_pod(&id_of(&id));
            }
            Event::RemotePodDeleted(id) => {
                self.remote_pods.remove(&id_of(&id));
                self.drop_allocation_without_pod(&id_of(&id));
            }
        }
    }

    fn drop_allocation_without_pod(&mut self, id: &Id) {
        if !self.local_pods.contains_key(id) && !self.remote_pods.contains_key(id) {
            self.allocations.remove(id);
        }
    }
}
