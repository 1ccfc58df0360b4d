//! Parses input once, into the form in which it is kept; leaves out what is invalid, with a warning that names it.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::address::Address;
use trueup_guest::network;

use crate::bindings::exports::trueup::service::processor::{CustomIpAllocation, LocalPod};
use crate::bindings::trueup::kube::types::{Endpoints as KubeEndpoints, ObjectId, Service as KubeService};
use crate::bindings::trueup::nodesync::types::Node;
use crate::bindings::trueup::service::types::{ContivService, ServicePort, TrafficPolicy};
use crate::id::Id;
use crate::inputs::{Endpoints, Pod, Subset};
use crate::view;
use crate::world::World;

/// The address, or a warning that names its role.
pub(crate) fn address(world: &mut impl World, what: &str, of: &[(&str, &str)], text: &str) -> Option<Address> {
    let message = format!("{what} does not parse and is left out");
    world.or_warn(Address::parse(text), &message, &[of, &[("address", text)]].concat())
}

/// The fields of a log line about this object.
pub(crate) fn of(id: &ObjectId) -> [(&str, &str); 2] {
    [("namespace", &id.namespace), ("name", &id.name)]
}

/// The service with everything but its backends. `None` for an `ExternalName`: it is not rendered, whatever its
/// endpoints.
pub(crate) fn service(world: &mut impl World, service: KubeService) -> Option<ContivService> {
    if service.service_type == "ExternalName" {
        return None;
    }
    let cluster_ip = Some(&service.cluster_ip).filter(|ip| !ip.is_empty() && *ip != "None");
    let ingress_ips = (service.service_type == "LoadBalancer").then_some(&service.lb_ingress_ips);
    let external_ips = service.external_ips.iter().chain(ingress_ips.into_iter().flatten());
    let timeout_s = Some(service.session_affinity_timeout_s);
    let timeout_s = timeout_s.filter(|_| service.session_affinity == "ClientIP");
    // Of two ports with one name the last counts.
    let ports = service.ports.into_iter().map(|port| (port.name.clone(), port));
    let ports: BTreeMap<String, _> = ports.collect();
    Some(ContivService {
        traffic_policy: match service.external_traffic_policy.as_str() {
            "Local" => TrafficPolicy::NodeLocal,
            _ => TrafficPolicy::ClusterWide,
        },
        session_affinity_timeout_s: timeout_s.unwrap_or(0),
        cluster_ips: canonical(world, "a cluster IP", &service.id, cluster_ip.into_iter()),
        external_ips: canonical(world, "an external IP", &service.id, external_ips),
        ports: ports
            .into_values()
            .map(|port| ServicePort {
                name: port.name,
                protocol: port.protocol,
                port: port.port,
                node_port: port.node_port,
            })
            .collect(),
        backends: Vec::new(),
        id: service.id,
    })
}

/// A sorted set, with each address in its canonical spelling.
fn canonical<'t>(
    world: &mut impl World,
    what: &str,
    id: &ObjectId,
    texts: impl Iterator<Item = &'t String>,
) -> Vec<String> {
    let set: BTreeSet<Address> = texts.filter_map(|text| address(world, what, &of(id), text)).collect();
    set.iter().map(Address::to_string).collect()
}

/// The endpoints with valid addresses.
pub(crate) fn endpoints(world: &mut impl World, endpoints: KubeEndpoints) -> (Id, Endpoints) {
    let id = Id::from(endpoints.id);
    let subsets = endpoints.subsets.into_iter().map(|subset| {
        let addresses = subset.addresses.into_iter().filter_map(|listed| {
            let address = address(world, "the address of an endpoint", &of(id.object()), &listed.ip)?;
            Some((address, listed.target_pod.map(Id::from)))
        });
        Subset {
            addresses: addresses.collect(),
            ports: subset.ports.into_iter().map(|port| (port.name, port.port)).collect(),
        }
    });
    (id.clone(), subsets.collect())
}

/// A pod; it may have no address yet.
pub(crate) fn pod(world: &mut impl World, pod: LocalPod) -> (Id, Pod) {
    let text = Some(&pod.ip).filter(|text| !text.is_empty());
    let address = text.and_then(|text| address(world, "the address of a pod", &of(&pod.id), text));
    let interface = pod.interface_name.filter(|name| !name.is_empty());
    (Id::from(pod.id), Pod { address, interface })
}

/// Warns if the interface that services are redirected to has no address.
pub(crate) fn check_allocation(world: &mut impl World, allocation: &CustomIpAllocation) {
    if let Some(endpoint) = view::service_endpoint(&allocation.interfaces) {
        let text = network::without_prefix_len(&endpoint.ip);
        address(world, "the address of a service endpoint", &of(&allocation.pod), text);
    }
}

/// The addresses of all nodes, on the data plane and for management.
pub(crate) fn node_ips(world: &mut impl World, nodes: &[Node]) -> BTreeSet<Address> {
    let mut ips = BTreeSet::new();
    for node in nodes {
        let data_plane = node
            .vpp_ip_addresses
            .iter()
            .map(|text| network::without_prefix_len(text));
        let texts = data_plane.chain(node.mgmt_ip_addresses.iter().map(String::as_str));
        ips.extend(texts.filter_map(|text| address(world, "the address of a node", &[("node", &node.name)], text)));
    }
    ips
}
