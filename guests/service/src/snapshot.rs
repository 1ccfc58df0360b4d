//! The whole state of an instance as text, for the next build of this guest.
//!
//! Holds the parsed inputs, and what the renderers acknowledged: the difference is still to do, even if the next build
//! computes another one. Without settings. Uses rows instead of members, so that a cluster of many services fits the
//! limits of an answer.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use trueup_guest::address::Address;
use trueup_guest::{Guest, Imports, snapshot};

use crate::bindings::exports::trueup::service::processor::{CustomInterface, NodeContext};
use crate::bindings::trueup::kube::types::Protocol;
use crate::bindings::trueup::service::types::{Backend, ContivService, PortBackends, ServicePort, TrafficPolicy};
use crate::id::Id;
use crate::inputs::{Endpoints, Inputs, Pod, Subset};
use crate::processor::{Known, Processor};
use crate::rendering::Rendering;
use crate::settings::Settings;
use crate::view::View;
use crate::wiring::Wiring;
use crate::world::World;

/// The layout of the text.
const VERSION: u64 = 1;

/// Borrowed for writing, owned for reading.
type Text<'s> = Cow<'s, str>;
/// id, address, interface
type PodRow<'s> = (Id, Option<Address>, Option<Text<'s>>);
/// Addresses with the pod behind each, and ports.
type SubsetRow<'s> = (Cow<'s, [(Address, Option<Id>)]>, Cow<'s, [(String, u16)]>);
/// ip, port, local, host-network
type BackendRow<'s> = (Text<'s>, u16, bool, bool);

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
    local_pods: Vec<PodRow<'s>>,
    remote_pods: Vec<PodRow<'s>>,
    endpoints: Vec<(Id, Vec<SubsetRow<'s>>)>,
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

#[derive(Serialize, Deserialize)]
struct ServiceText<'s> {
    id: Id,
    node_local: bool,
    affinity_s: u32,
    cluster_ips: Vec<Text<'s>>,
    external_ips: Vec<Text<'s>>,
    /// name, protocol, port, node port
    ports: Vec<(Text<'s>, Protocol, u16, u16)>,
    backends: Vec<(Text<'s>, Vec<BackendRow<'s>>)>,
}

impl Guest for Processor {
    fn init(config: &str) -> Result<Self, String> {
        Settings::read(config).map(Self::new)
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
        let Known {
            inputs,
            view,
            rendering,
        } = known;
        let subset = |subset: &'s Subset| (Cow::from(&subset.addresses), Cow::from(&subset.ports));
        let subsets = |endpoints: &'s Endpoints| endpoints.iter().map(subset).collect();
        let endpoints = inputs.endpoints.iter();
        let endpoints = endpoints.map(|(id, endpoints)| (id.clone(), subsets(endpoints)));
        let allocations = inputs.allocations.iter();
        let acknowledged = rendering.services().map(|services| Acknowledged {
            node_ips: rendering.node_ips().clone(),
            services: services.map(ServiceText::of).collect(),
            frontend_ifs: view.frontends.acknowledged().into_iter().collect(),
            backend_ifs: view.backends.acknowledged().into_iter().collect(),
        });
        Self {
            context: inputs.wiring.context().clone(),
            node_ips: inputs.node_ips.clone(),
            local_pods: inputs.local_pods.iter().map(pod_row).collect(),
            remote_pods: inputs.remote_pods.iter().map(pod_row).collect(),
            endpoints: endpoints.collect(),
            services: inputs.services.values().map(ServiceText::of).collect(),
            allocations: allocations
                .map(|(id, interfaces)| (id.clone(), interfaces.clone()))
                .collect(),
            acknowledged,
        }
    }

    fn read(self, world: &mut impl World, default_pod_network: &str) -> Known {
        let services = self.services.into_iter().map(ServiceText::read);
        let inputs = Inputs {
            wiring: Wiring::read(world, self.context),
            node_ips: self.node_ips,
            local_pods: self.local_pods.into_iter().map(pod).collect(),
            remote_pods: self.remote_pods.into_iter().map(pod).collect(),
            endpoints: self.endpoints.into_iter().map(endpoints).collect(),
            services: services
                .map(|service| (Id::from(service.id.clone()), service))
                .collect(),
            allocations: self.allocations.into_iter().collect(),
        };
        let mut view = View::new(&inputs, default_pod_network);
        let rendering = match self.acknowledged {
            None => Rendering::refused(&inputs, &mut view),
            Some(acknowledged) => {
                let services = acknowledged.services.into_iter().map(ServiceText::read).collect();
                let rendering = Rendering::restored(&inputs, &mut view, acknowledged.node_ips, services);
                view.frontends.set_acknowledged(&acknowledged.frontend_ifs);
                view.backends.set_acknowledged(&acknowledged.backend_ifs);
                rendering
            }
        };
        Known {
            inputs,
            view,
            rendering,
        }
    }
}

impl<'s> ServiceText<'s> {
    fn of(service: &'s ContivService) -> Self {
        let backend = |backend: &'s Backend| {
            let Backend {
                ip,
                port,
                local,
                host_network,
            } = backend;
            (Text::from(ip), *port, *local, *host_network)
        };
        let port = |port: &'s ServicePort| (Text::from(&port.name), port.protocol, port.port, port.node_port);
        let backends = |of: &'s PortBackends| (Text::from(&of.port_name), of.backends.iter().map(backend).collect());
        Self {
            id: Id::from(service.id.clone()),
            node_local: service.traffic_policy == TrafficPolicy::NodeLocal,
            affinity_s: service.session_affinity_timeout_s,
            cluster_ips: service.cluster_ips.iter().map(Text::from).collect(),
            external_ips: service.external_ips.iter().map(Text::from).collect(),
            ports: service.ports.iter().map(port).collect(),
            backends: service.backends.iter().map(backends).collect(),
        }
    }

    fn read(self) -> ContivService {
        let port = |(name, protocol, port, node_port): (Text<'_>, Protocol, u16, u16)| ServicePort {
            name: name.into_owned(),
            protocol,
            port,
            node_port,
        };
        let backend = |(ip, port, local, host_network): BackendRow<'_>| Backend {
            ip: ip.into_owned(),
            port,
            local,
            host_network,
        };
        let backends = |(name, rows): (Text<'_>, Vec<BackendRow<'_>>)| PortBackends {
            port_name: name.into_owned(),
            backends: rows.into_iter().map(backend).collect(),
        };
        ContivService {
            id: self.id.object().clone(),
            traffic_policy: if self.node_local {
                TrafficPolicy::NodeLocal
            } else {
                TrafficPolicy::ClusterWide
            },
            session_affinity_timeout_s: self.affinity_s,
            cluster_ips: self.cluster_ips.into_iter().map(Text::into_owned).collect(),
            external_ips: self.external_ips.into_iter().map(Text::into_owned).collect(),
            ports: self.ports.into_iter().map(port).collect(),
            backends: self.backends.into_iter().map(backends).collect(),
        }
    }
}

fn pod_row<'s>((id, pod): (&'s Id, &'s Pod)) -> PodRow<'s> {
    (id.clone(), pod.address, pod.interface.as_ref().map(Text::from))
}

fn pod((id, address, interface): PodRow<'_>) -> (Id, Pod) {
    let interface = interface.map(Text::into_owned);
    (id, Pod { address, interface })
}

fn endpoints((id, rows): (Id, Vec<SubsetRow<'_>>)) -> (Id, Endpoints) {
    let subset = |(addresses, ports): SubsetRow<'_>| Subset {
        addresses: addresses.into_owned(),
        ports: ports.into_owned(),
    };
    (id, rows.into_iter().map(subset).collect())
}
