//! The whole state of an instance as text, for the next build of this guest.
//!
//! Holds the parsed inputs, and what the renderers acknowledged: the difference is still to do, even if the next build
//! computes another one. Without settings. Uses rows instead of members, so that a cluster of many services fits the
//! limits of an answer.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use trueup_guest::address::Address;
use trueup_guest::snapshot::{self, misfit};
use trueup_guest::text;

use crate::bindings::exports::trueup::service::processor::{CustomInterface, NodeContext};
use crate::bindings::trueup::kube::types::{ObjectId, Protocol};
use crate::bindings::trueup::service::types::{Backend, ContivService, PortBackends, ServicePort, TrafficPolicy};
use crate::id::Id;
use crate::inputs::{Endpoints, Inputs, Pod, Subset};
use crate::processor::Known;
use crate::rendering::Rendering;
use crate::view::View;
use crate::wiring::Wiring;
use crate::world::World;

/// The layout of the text.
const VERSION: u64 = 1;

/// Borrowed for writing, owned for reading.
type Text<'s> = Cow<'s, str>;
/// namespace, name
type IdRow<'s> = (Text<'s>, Text<'s>);
/// id, address, interface
type PodRow<'s> = (IdRow<'s>, Option<String>, Option<Text<'s>>);
/// Addresses with the pod behind each, and ports.
type SubsetRow<'s> = (Vec<(String, Option<IdRow<'s>>)>, Vec<(Text<'s>, u16)>);
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
    node_ips: Vec<String>,
    local_pods: Vec<PodRow<'s>>,
    remote_pods: Vec<PodRow<'s>>,
    endpoints: Vec<(IdRow<'s>, Vec<SubsetRow<'s>>)>,
    services: Vec<ServiceText<'s>>,
    allocations: Vec<(IdRow<'s>, Vec<CustomInterface>)>,
    /// Null if the renderers refused everything: the next event hands it over again.
    acknowledged: Option<Acknowledged<'s>>,
}

#[derive(Serialize, Deserialize)]
struct Acknowledged<'s> {
    node_ips: Vec<String>,
    services: Vec<ServiceText<'s>>,
    frontend_ifs: BTreeSet<String>,
    backend_ifs: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct ServiceText<'s> {
    id: IdRow<'s>,
    node_local: bool,
    affinity_s: u32,
    cluster_ips: Vec<Text<'s>>,
    external_ips: Vec<Text<'s>>,
    /// name, protocol, port, node port
    ports: Vec<(Text<'s>, Protocol, u16, u16)>,
    backends: Vec<(Text<'s>, Vec<BackendRow<'s>>)>,
}

/// The text for `lifecycle.snapshot`.
pub(crate) fn write(known: Option<&Known>) -> String {
    let snapshot = Snapshot {
        version: VERSION,
        known: known.map(KnownText::of),
    };
    snapshot::write(&snapshot)
}

/// Parses the text of [`write()`].
///
/// # Errors
/// The version that wrote the text, or what is wrong with it.
pub(crate) fn read(world: &mut impl World, snapshot: &str, default_pod_network: &str) -> Result<Option<Known>, String> {
    let snapshot: Snapshot<'_> = snapshot::read(snapshot, VERSION)?;
    let known = snapshot.known.map(|known| known.read(world, default_pod_network));
    known
        .transpose()
        .map_err(|address| misfit(&format!("{} is no address", text::quoted(&address)), VERSION))
}

impl<'s> KnownText<'s> {
    fn of(known: &'s Known) -> Self {
        let Known {
            inputs,
            view,
            rendering,
        } = known;
        let subset = |subset: &'s Subset| {
            let address = |(address, pod): &'s (Address, Option<Id>)| (address.to_string(), pod.as_ref().map(id_row));
            let port = |(name, number): &'s (String, u16)| (Text::from(name), *number);
            let addresses = subset.addresses.iter().map(address).collect();
            (addresses, subset.ports.iter().map(port).collect())
        };
        let endpoints = inputs.endpoints.iter();
        let endpoints = endpoints.map(|(id, endpoints)| (id_row(id), endpoints.subsets.iter().map(subset).collect()));
        let allocations = inputs.allocations.iter();
        let acknowledged = rendering.services().map(|services| Acknowledged {
            node_ips: texts(rendering.node_ips()),
            services: services.map(ServiceText::of).collect(),
            frontend_ifs: view.frontends.acknowledged().into_iter().collect(),
            backend_ifs: view.backends.acknowledged().into_iter().collect(),
        });
        Self {
            context: inputs.wiring.context().clone(),
            node_ips: texts(&inputs.node_ips),
            local_pods: pod_rows(&inputs.local_pods),
            remote_pods: pod_rows(&inputs.remote_pods),
            endpoints: endpoints.collect(),
            services: inputs.services.values().map(ServiceText::of).collect(),
            allocations: allocations
                .map(|(id, interfaces)| (id_row(id), interfaces.clone()))
                .collect(),
            acknowledged,
        }
    }

    /// The error is the first invalid address.
    fn read(self, world: &mut impl World, default_pod_network: &str) -> Result<Known, String> {
        let services = self.services.into_iter().map(ServiceText::read);
        let allocations = self.allocations.into_iter();
        let inputs = Inputs {
            wiring: Wiring::read(world, self.context),
            node_ips: addresses(self.node_ips)?,
            local_pods: pods(self.local_pods)?,
            remote_pods: pods(self.remote_pods)?,
            endpoints: self.endpoints.into_iter().map(endpoints).collect::<Result<_, _>>()?,
            services: services
                .map(|service| (Id::from(service.id.clone()), service))
                .collect(),
            allocations: allocations.map(|(id, interfaces)| (read_id(id), interfaces)).collect(),
        };
        let mut view = View::new(&inputs, default_pod_network);
        let rendering = match self.acknowledged {
            None => Rendering::refused(&inputs, &mut view),
            Some(acknowledged) => {
                let services = acknowledged.services.into_iter().map(ServiceText::read).collect();
                let node_ips = addresses(acknowledged.node_ips)?;
                let rendering = Rendering::restored(&inputs, &mut view, node_ips, services);
                view.frontends.set_acknowledged(&acknowledged.frontend_ifs);
                view.backends.set_acknowledged(&acknowledged.backend_ifs);
                rendering
            }
        };
        Ok(Known {
            inputs,
            view,
            rendering,
        })
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
            id: object_row(&service.id),
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
            id: read_object(self.id),
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

fn object_row(id: &ObjectId) -> IdRow<'_> {
    (Text::from(&id.namespace), Text::from(&id.name))
}

fn id_row(id: &Id) -> IdRow<'_> {
    object_row(id.object())
}

fn read_object((namespace, name): IdRow<'_>) -> ObjectId {
    ObjectId {
        namespace: namespace.into_owned(),
        name: name.into_owned(),
    }
}

fn read_id(row: IdRow<'_>) -> Id {
    Id::from(read_object(row))
}

fn pod_rows(pods: &BTreeMap<Id, Pod>) -> Vec<PodRow<'_>> {
    pods.iter().map(pod_row).collect()
}

fn pod_row<'s>((id, pod): (&'s Id, &'s Pod)) -> PodRow<'s> {
    let interface = pod.interface.as_ref().map(Text::from);
    (id_row(id), pod.address.as_ref().map(Address::to_string), interface)
}

fn pods(rows: Vec<PodRow<'_>>) -> Result<BTreeMap<Id, Pod>, String> {
    let pod = |(id, text, interface): PodRow<'_>| {
        let address = text.map(address).transpose()?;
        let interface = interface.map(Text::into_owned);
        Ok((read_id(id), Pod { address, interface }))
    };
    rows.into_iter().map(pod).collect()
}

fn endpoints((id, rows): (IdRow<'_>, Vec<SubsetRow<'_>>)) -> Result<(Id, Endpoints), String> {
    let subset = |(rows, ports): SubsetRow<'_>| {
        let addresses = rows
            .into_iter()
            .map(|(text, pod)| Ok((address(text)?, pod.map(read_id))));
        Ok(Subset {
            addresses: addresses.collect::<Result<_, String>>()?,
            ports: ports
                .into_iter()
                .map(|(name, number)| (name.into_owned(), number))
                .collect(),
        })
    };
    let subsets = rows.into_iter().map(subset).collect::<Result<_, String>>()?;
    Ok((read_id(id), Endpoints { subsets }))
}

fn texts(addresses: &BTreeSet<Address>) -> Vec<String> {
    addresses.iter().map(Address::to_string).collect()
}

fn address(text: String) -> Result<Address, String> {
    Address::parse(&text).ok_or(text)
}

fn addresses(texts: Vec<String>) -> Result<BTreeSet<Address>, String> {
    texts.into_iter().map(address).collect()
}
