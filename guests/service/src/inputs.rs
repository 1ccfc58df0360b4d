//! The parsed inputs, with the wiring of this node: which addresses are local, and which interfaces exist without pods.
//! The renderers' configuration follows from them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};
use trueup_guest::address::Address;
use trueup_guest::network::Network;

use crate::bindings::exports::trueup::service::processor::{CustomInterface, CustomIpAllocation, NodeContext, State};
use crate::bindings::trueup::kube::types::Service as KubeService;
use crate::bindings::trueup::service::types::ContivService;
use crate::id::Id;
use crate::parse;
use crate::world::World;

/// A pod of this node, or of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pod {
    /// `None` if it has none, or an invalid one.
    pub(crate) address: Option<Address>,
    /// `None` if it uses the host's network.
    pub(crate) interface: Option<String>,
}

/// The endpoints of a service, in subsets as given.
pub(crate) type Endpoints = Vec<Subset>;

/// Addresses that share their ports. As JSON the list of the two, which serde reads as a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Subset {
    /// Each with its pod, if the endpoint names one.
    pub(crate) addresses: Vec<(Address, Option<Id>)>,
    /// Name and number.
    pub(crate) ports: Vec<(String, u16)>,
}

impl Serialize for Subset {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.addresses, &self.ports).serialize(serializer)
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
    pub(crate) fn read<W: World>(world: &mut W, state: State) -> Self {
        let service = |world: &mut W, service: KubeService| {
            let id = Id::from(service.id.clone());
            (id, parse::service(world, service))
        };
        let allocation = |world: &mut W, allocation: CustomIpAllocation| {
            parse::check_allocation(world, &allocation);
            (Id::from(allocation.pod), allocation.interfaces)
        };
        let wiring = Wiring::read(world, state.context);
        let node_ips = parse::node_ips(world, &state.nodes);
        let local_pods = read_all(world, "local pods", state.local_pods, parse::pod);
        let remote_pods = read_all(world, "remote pods", state.remote_pods, parse::pod);
        let endpoints = read_all(world, "endpoints", state.endpoints, parse::endpoints);
        let services = read_all(world, "services", state.services, service).into_iter();
        Self {
            wiring,
            node_ips,
            local_pods,
            remote_pods,
            endpoints,
            services: services.filter_map(|(id, service)| Some((id, service?))).collect(),
            allocations: read_all(world, "ip allocations", state.ip_allocations, allocation),
        }
    }

    /// The local pod of that id, else the remote one.
    pub(crate) fn pod(&self, id: &Id) -> Option<&Pod> {
        self.local_pods.get(id).or_else(|| self.remote_pods.get(id))
    }
}

fn read_all<W: World, G, T>(
    world: &mut W,
    what: &str,
    given: Vec<G>,
    read: impl Fn(&mut W, G) -> (Id, T),
) -> BTreeMap<Id, T> {
    let mut all = BTreeMap::new();
    for one in given {
        let (id, value) = read(world, one);
        if all.insert(id.clone(), value).is_some() {
            let [namespace, name] = parse::of(id.object());
            world.warn(
                "an id is given twice: the last counts",
                &[("in", what), namespace, name],
            );
        }
    }
    all
}

/// The location of an address, as seen from this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) address: Address,
    /// On this node.
    pub(crate) is_local: bool,
    /// Outside of every pod network.
    pub(crate) is_host_network: bool,
}

/// The node's context with parsed addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wiring {
    /// The contract's form.
    pub(crate) context: NodeContext,
    /// `node-ip` and `host-ips`
    own: BTreeSet<Address>,
    /// `None` contains nothing.
    this_node: Option<Network>,
    /// `None` contains nothing.
    all_nodes: Option<Network>,
}

impl Wiring {
    /// Logs a warning for each text that is invalid and not empty.
    pub(crate) fn read(world: &mut impl World, context: NodeContext) -> Self {
        let filled = |text: &&String| !text.is_empty();
        let texts = context.host_ips.iter().chain(Some(&context.node_ip).filter(filled));
        let own = texts
            .filter_map(|text| parse::address(world, "an address of this node", &[], text))
            .collect();
        let mut network = |text: &String| {
            let network = Network::parse(text);
            if network.is_none() && !text.is_empty() {
                world.warn("a pod subnet does not parse and contains nothing", &[("subnet", text)]);
            }
            network
        };
        Self {
            own,
            this_node: network(&context.pod_subnet_this_node),
            all_nodes: network(&context.pod_subnet_all_nodes),
            context,
        }
    }

    /// The location of a backend with this address.
    pub(crate) fn location(&self, address: Address) -> Location {
        let is_in = |network: Option<Network>| network.is_some_and(|network| network.contains(address));
        let is_host_network = !is_in(self.all_nodes);
        Location {
            address,
            is_local: is_in(self.this_node) || (is_host_network && self.own.contains(&address)),
            is_host_network,
        }
    }

    /// Interfaces of clients, except those of pods. Skips empty names.
    pub(crate) fn frontends(&self) -> impl Iterator<Item = &str> {
        let context = &self.context;
        let names = [
            &context.vxlan_bvi_interface,
            &context.main_interface,
            &context.host_interconnect_interface,
        ];
        filled(names.into_iter().chain(&context.other_interfaces))
    }

    /// Interfaces of backends, except those of pods. Skips empty names.
    pub(crate) fn backends(&self) -> impl Iterator<Item = &str> {
        let context = &self.context;
        let overlay = filled([&context.vxlan_bvi_interface, &context.main_interface].into_iter()).next();
        let host = filled([&context.host_interconnect_interface].into_iter());
        overlay.into_iter().chain(host)
    }
}

fn filled<'n>(names: impl Iterator<Item = &'n String>) -> impl Iterator<Item = &'n str> {
    names.map(String::as_str).filter(|name| !name.is_empty())
}
