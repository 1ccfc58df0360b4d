//! The parsed inputs: the renderers' configuration follows from them.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::address::Address;

use crate::bindings::exports::trueup::service::processor::{CustomInterface, State};
use crate::bindings::trueup::service::types::ContivService;
use crate::id::Id;
use crate::parse;
use crate::wiring::Wiring;
use crate::world::World;

/// A pod of this node, or of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pod {
    /// `None` if it has none, or an invalid one.
    pub(crate) address: Option<Address>,
    /// `None` if it uses the host's network.
    pub(crate) interface: Option<String>,
}

/// The endpoints of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    /// As given.
    pub(crate) subsets: Vec<Subset>,
}

/// Addresses that share their ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subset {
    /// Each with its pod, if the endpoint names one.
    pub(crate) addresses: Vec<(Address, Option<Id>)>,
    /// Name and number.
    pub(crate) ports: Vec<(String, u16)>,
}

impl Endpoints {
    /// All addresses, of all subsets.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = Address> {
        self.subsets
            .iter()
            .flat_map(|subset| &subset.addresses)
            .map(|(address, _)| *address)
    }
}

/// The inputs.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    /// This node's wiring.
    pub(crate) wiring: Wiring,
    /// The addresses of all nodes.
    pub(crate) node_ips: BTreeSet<Address>,
    /// Pods of this node.
    pub(crate) local_pods: BTreeMap<Id, Pod>,
    /// Pods of other nodes.
    pub(crate) remote_pods: BTreeMap<Id, Pod>,
    /// By the id of their service.
    pub(crate) endpoints: BTreeMap<Id, Endpoints>,
    /// Without backends, and without those of type `ExternalName`.
    pub(crate) services: BTreeMap<Id, ContivService>,
    /// Extra interfaces, by their pod.
    pub(crate) allocations: BTreeMap<Id, Vec<CustomInterface>>,
}

impl Inputs {
    /// The inputs of a resync. Of a duplicate id the last counts, with a warning.
    pub(crate) fn read(world: &mut impl World, state: State) -> Self {
        let mut inputs = Self {
            wiring: Wiring::read(world, state.context),
            node_ips: parse::node_ips(world, &state.nodes),
            local_pods: BTreeMap::new(),
            remote_pods: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            services: BTreeMap::new(),
            allocations: BTreeMap::new(),
        };
        for pod in state.local_pods {
            let (id, pod) = parse::pod(world, pod);
            put(world, "local pods", &mut inputs.local_pods, id, pod);
        }
        for pod in state.remote_pods {
            let (id, pod) = parse::pod(world, pod);
            put(world, "remote pods", &mut inputs.remote_pods, id, pod);
        }
        for endpoints in state.endpoints {
            let (id, endpoints) = parse::endpoints(world, endpoints);
            put(world, "endpoints", &mut inputs.endpoints, id, endpoints);
        }
        let mut services = BTreeMap::new();
        for service in state.services {
            let id = Id::from(service.id.clone());
            let service = parse::service(world, service);
            put(world, "services", &mut services, id, service);
        }
        let rendered = services.into_iter().filter_map(|(id, service)| Some((id, service?)));
        inputs.services = rendered.collect();
        for allocation in state.ip_allocations {
            parse::check_allocation(world, &allocation);
            let id = Id::from(allocation.pod);
            put(
                world,
                "ip allocations",
                &mut inputs.allocations,
                id,
                allocation.interfaces,
            );
        }
        inputs
    }

    /// The local pod of that id, else the remote one.
    pub(crate) fn pod(&self, id: &Id) -> Option<&Pod> {
        self.local_pods.get(id).or_else(|| self.remote_pods.get(id))
    }
}

fn put<T>(world: &mut impl World, what: &str, map: &mut BTreeMap<Id, T>, id: Id, value: T) {
    if map.insert(id.clone(), value).is_some() {
        let object = id.object();
        world.warn(
            "an id is given twice: the last counts",
            &[("in", what), ("namespace", &object.namespace), ("name", &object.name)],
        );
    }
}
