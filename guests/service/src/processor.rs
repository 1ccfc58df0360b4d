//! One instance: takes events, and calls the renderers with what follows from them. And its text.
//!
//! Each public function is an export of the world.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};
use trueup_guest::address::Address;
use trueup_guest::{Guest, Imports, snapshot};

use crate::bindings::exports::trueup::service::processor::{CustomInterface, Event, LocalPod, NodeContext, State};
use crate::bindings::trueup::kube::types::ObjectId;
use crate::bindings::trueup::service::types::{ContivService, PortBackends, ServicePort, TrafficPolicy};
use crate::id::{Id, by_id};
use crate::inputs::{Inputs, Pod, Subset, Wiring};
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

/// The layout of the text.
const VERSION: u64 = 1;

/// id, address, interface
type PodRow = (Id, Option<Address>, Option<String>);

/// The whole state of an instance, for the next build of this guest.
///
/// Holds the parsed inputs, and what the renderers acknowledged: the difference is still to do, even if the next build
/// computes another one. Without settings. Uses rows instead of members, so that a cluster of many services fits the
/// limits of an answer.
#[derive(Serialize, Deserialize)]
struct Snapshot<'s> {
    version: u64,
    /// Null before the first resync.
    known: Option<KnownText<'s>>,
}

#[derive(Serialize, Deserialize)]
struct KnownText<'s> {
    context: NodeContext,
    node_ips: BTreeSet<Address>,
    local_pods: Vec<PodRow>,
    remote_pods: Vec<PodRow>,
    endpoints: Vec<(Id, Cow<'s, [Subset]>)>,
    services: Vec<ServiceText<'s>>,
    allocations: Vec<(Id, Vec<CustomInterface>)>,
    /// Null if the renderers refused everything: the next event hands it over again.
    acknowledged: Option<Acknowledged<'s>>,
}

#[derive(Serialize, Deserialize)]
struct Acknowledged<'s> {
    node_ips: BTreeSet<Address>,
    services: Vec<ServiceText<'s>>,
    frontend_ifs: BTreeSet<String>,
    backend_ifs: BTreeSet<String>,
}

/// Lists are borrowed for writing, owned after reading. Serde reads the rows as records.
#[derive(Serialize, Deserialize)]
struct ServiceText<'s> {
    id: Id,
    node_local: bool,
    affinity_s: u32,
    cluster_ips: Cow<'s, [String]>,
    external_ips: Cow<'s, [String]>,
    #[serde(serialize_with = "port_rows")]
    ports: Cow<'s, [ServicePort]>,
    #[serde(serialize_with = "backend_rows")]
    backends: Cow<'s, [PortBackends]>,
}

/// name, protocol, port, node port
fn port_rows<S: Serializer>(ports: &[ServicePort], serializer: S) -> Result<S::Ok, S::Error> {
    let rows = ports.iter().map(|of| (&of.name, of.protocol, of.port, of.node_port));
    serializer.collect_seq(rows)
}

/// The port's name, and for each backend: ip, port, local, host-network
fn backend_rows<S: Serializer>(backends: &[PortBackends], serializer: S) -> Result<S::Ok, S::Error> {
    let rows = backends.iter().map(|of| {
        let backends = of
            .backends
            .iter()
            .map(|of| (&of.ip, of.port, of.local, of.host_network));
        (&of.port_name, backends.collect::<Vec<_>>())
    });
    serializer.collect_seq(rows)
}

impl Guest for Processor {
    fn init(config: &str) -> Result<Self, String> {
        Ok(Self {
            settings: Settings::read(config)?,
            known: None,
            shown: None,
        })
    }

    fn snapshot(&self) -> String {
        snapshot::write(&Snapshot {
            version: VERSION,
            known: self.known.as_ref().map(KnownText::of),
        })
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        self.restore(&mut Imports, snapshot)
    }
}

impl Processor {
    /// `lifecycle.restore`
    ///
    /// # Errors
    /// Why the text is no snapshot of this guest; then nothing has changed.
    pub(crate) fn restore(&mut self, world: &mut impl World, snapshot: &str) -> Result<(), String> {
        let snapshot: Snapshot<'_> = snapshot::read(snapshot, VERSION)?;
        let network = &self.settings.default_pod_network;
        self.known = snapshot.known.map(|known| known.read(world, network));
        self.shown = None;
        self.show(world);
        Ok(())
    }
}

impl<'s> KnownText<'s> {
    fn of(known: &'s Known) -> Self {
        let (inputs, view, rendering) = (&known.inputs, &known.view, &known.rendering);
        let endpoints = inputs.endpoints.iter();
        let endpoints = endpoints.map(|(id, subsets)| (id.clone(), Cow::from(subsets)));
        let acknowledged = rendering.is_in_step.then(|| Acknowledged {
            node_ips: rendering.node_ips.clone(),
            services: rendering.services.values().map(ServiceText::of).collect(),
            frontend_ifs: view.frontends.acknowledged().into_iter().collect(),
            backend_ifs: view.backends.acknowledged().into_iter().collect(),
        });
        Self {
            context: inputs.wiring.context.clone(),
            node_ips: inputs.node_ips.clone(),
            local_pods: inputs.local_pods.iter().map(pod_row).collect(),
            remote_pods: inputs.remote_pods.iter().map(pod_row).collect(),
            endpoints: endpoints.collect(),
            services: inputs.services.values().map(ServiceText::of).collect(),
            allocations: inputs.allocations.clone().into_iter().collect(),
            acknowledged,
        }
    }

    fn read(self, world: &mut impl World, default_pod_network: &str) -> Known {
        let endpoints = self.endpoints.into_iter();
        let services = self.services.into_iter().map(ServiceText::read);
        let inputs = Inputs {
            wiring: Wiring::read(world, self.context),
            node_ips: self.node_ips,
            local_pods: self.local_pods.into_iter().map(pod).collect(),
            remote_pods: self.remote_pods.into_iter().map(pod).collect(),
            endpoints: endpoints.map(|(id, subsets)| (id, subsets.into_owned())).collect(),
            services: services.map(by_id).collect(),
            allocations: self.allocations.into_iter().collect(),
        };
        let mut known = Known {
            view: View::new(&inputs, default_pod_network),
            inputs,
            rendering: Rendering::default(),
        };
        // Else the renderers have nothing, and the next event hands over everything.
        if let Some(acknowledged) = self.acknowledged {
            known.view.frontends.set_acknowledged(&acknowledged.frontend_ifs);
            known.view.backends.set_acknowledged(&acknowledged.backend_ifs);
            known.rendering.is_in_step = true;
            known.rendering.node_ips = acknowledged.node_ips;
            let services = acknowledged.services.into_iter().map(ServiceText::read);
            known.rendering.services = services.map(by_id).collect();
        }
        known.compare();
        known
    }
}

impl<'s> ServiceText<'s> {
    fn of(service: &'s ContivService) -> Self {
        Self {
            id: Id::from(service.id.clone()),
            node_local: service.traffic_policy == TrafficPolicy::NodeLocal,
            affinity_s: service.session_affinity_timeout_s,
            cluster_ips: Cow::from(&service.cluster_ips),
            external_ips: Cow::from(&service.external_ips),
            ports: Cow::from(&service.ports),
            backends: Cow::from(&service.backends),
        }
    }

    fn read(self) -> ContivService {
        ContivService {
            id: self.id.object().clone(),
            traffic_policy: match self.node_local {
                true => TrafficPolicy::NodeLocal,
                false => TrafficPolicy::ClusterWide,
            },
            session_affinity_timeout_s: self.affinity_s,
            cluster_ips: self.cluster_ips.into_owned(),
            external_ips: self.external_ips.into_owned(),
            ports: self.ports.into_owned(),
            backends: self.backends.into_owned(),
        }
    }
}

fn pod_row((id, pod): (&Id, &Pod)) -> PodRow {
    (id.clone(), pod.address, pod.interface.clone())
}

fn pod((id, address, interface): PodRow) -> (Id, Pod) {
    (id, Pod { address, interface })
}
