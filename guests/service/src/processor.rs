//! One instance: takes events, and calls the renderers with what follows from them.
//!
//! Each public function is an export of the world.

use std::collections::{BTreeMap, BTreeSet};

use crate::bindings::exports::trueup::service::processor::{Event, LocalPod, State};
use crate::bindings::trueup::kube::types::ObjectId;
use crate::id::Id;
use crate::inputs::{Inputs, Pod};
use crate::parse;
use crate::rendering::Rendering;
use crate::settings::Settings;
use crate::view::View;
use crate::world::{Rendered, World};

/// The state since the first resync.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The inputs.
    pub(crate) inputs: Inputs,
    /// What follows from them.
    pub(crate) view: View,
    /// What the renderers have of it.
    pub(crate) rendering: Rendering,
}

/// The state of an instance.
#[derive(Clone, Debug)]
pub(crate) struct Processor {
    pub(crate) settings: Settings,
    /// None before the first resync.
    pub(crate) known: Option<Known>,
    /// The last value that this instance sent for the gauge.
    pub(crate) shown: Option<usize>,
}

impl Processor {
    /// `processor.resync`
    ///
    /// # Errors
    /// A renderer's error. The guest keeps the inputs, and the next event hands over everything again.
    pub(crate) fn resync(&mut self, world: &mut impl World, state: State) -> Rendered {
        // Drop the old state before the new one arrives: both at once would be the peak of memory.
        self.known = None;
        let inputs = Inputs::read(world, state);
        let view = View::new(&inputs, &self.settings.default_pod_network);
        let known = self.known.insert(Known {
            inputs,
            view,
            rendering: Rendering::default(),
        });
        let result = known.resync(world);
        self.show(world);
        result
    }

    /// `processor.update`
    ///
    /// # Errors
    /// `no resync yet`, or the first error of a renderer. The next event retries what it refused.
    pub(crate) fn update(&mut self, world: &mut impl World, event: Event) -> Rendered {
        let Some(known) = &mut self.known else {
            return Err("no resync yet".to_owned());
        };
        let frontends_last = matches!(event, Event::PodDeleted(_));
        let touched = known.take(world, event);
        let result = known.follow(world, touched, frontends_last);
        self.show(world);
        result
    }

    /// `processor.revert`
    pub(crate) fn revert(&mut self, world: &mut impl World, pod: ObjectId) {
        if self.known.is_some() {
            // The log has the renderers' errors, and what they refused stays pending.
            let _ = self.update(world, Event::PodDeleted(pod));
        }
    }

    pub(crate) fn show(&mut self, world: &mut impl World) {
        if let Some(known) = &self.known {
            let count = known.view.services().len();
            if self.shown.replace(count) != Some(count) {
                world.gauge_count("service_services", &[], count);
            }
        }
    }
}

impl Known {
    /// Changes the inputs; returns the services to combine again.
    fn take(&mut self, world: &mut impl World, event: Event) -> BTreeSet<Id> {
        match event {
            Event::ServicePut(service) => {
                let id = Id::from(service.id.clone());
                match parse::service(world, service) {
                    Some(service) => self.inputs.services.insert(id.clone(), service),
                    None => self.inputs.services.remove(&id),
                };
                BTreeSet::from([id])
            }
            Event::ServiceDeleted(id) => {
                let id = Id::from(id);
                self.inputs.services.remove(&id);
                BTreeSet::from([id])
            }
            Event::EndpointsPut(endpoints) => {
                let (id, new) = parse::endpoints(world, endpoints);
                let old = self.inputs.endpoints.insert(id.clone(), new);
                self.view.list(&id, old.as_ref(), self.inputs.endpoints.get(&id));
                BTreeSet::from([id])
            }
            Event::EndpointsDeleted(id) => {
                let id = Id::from(id);
                let old = self.inputs.endpoints.remove(&id);
                self.view.list(&id, old.as_ref(), None);
                BTreeSet::from([id])
            }
            Event::IpAllocationPut(allocation) => {
                parse::check_allocation(world, &allocation);
                let id = Id::from(allocation.pod);
                self.inputs.allocations.insert(id.clone(), allocation.interfaces);
                self.view.touch_pod(&self.inputs, &id)
            }
            Event::PodAdded(pod) => self.put_pod(world, pod, |inputs| &mut inputs.local_pods),
            Event::RemotePodPut(pod) => self.put_pod(world, pod, |inputs| &mut inputs.remote_pods),
            Event::PodDeleted(id) => self.forget_pod(id, |inputs| &mut inputs.local_pods),
            Event::RemotePodDeleted(id) => self.forget_pod(id, |inputs| &mut inputs.remote_pods),
            Event::Nodes(nodes) => {
                self.inputs.node_ips = parse::node_ips(world, &nodes);
                self.compare_node_ips();
                BTreeSet::new()
            }
        }
    }

    fn put_pod(&mut self, world: &mut impl World, pod: LocalPod, pods: Pods) -> BTreeSet<Id> {
        let (id, pod) = parse::pod(world, pod);
        pods(&mut self.inputs).insert(id.clone(), pod);
        self.view.touch_pod(&self.inputs, &id)
    }

    /// A pod's allocation goes with it, unless another pod has the same id.
    fn forget_pod(&mut self, id: ObjectId, pods: Pods) -> BTreeSet<Id> {
        let id = Id::from(id);
        pods(&mut self.inputs).remove(&id);
        if self.inputs.pod(&id).is_none() {
            self.inputs.allocations.remove(&id);
        }
        self.view.touch_pod(&self.inputs, &id)
    }
}

/// The pods of this node, or of others.
type Pods = fn(&mut Inputs) -> &mut BTreeMap<Id, Pod>;
