//! The model of the service processor: the renderers' desired state is a function of the inputs.
//!
//! Written only from the specification, in one pass over everything and without indexes; it shares nothing with the
//! guest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use trueup_capabilities::renderer::{Backend, ContivService, PortBackends, Protocol, ServicePort, TrafficPolicy};
use trueup_worlds::node::guests::service::{Endpoints, LocalPod, Service};

use super::addresses::{address, before_slash, is_in};
use super::inputs::{Id, Inputs, id_of};

/// The desired state of every renderer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) node_ips: Vec<String>,
    pub(crate) services: BTreeMap<Id, ContivService>,
    pub(crate) frontend_ifs: Vec<String>,
    pub(crate) backend_ifs: Vec<String>,
}

/// Combines the inputs.
pub(crate) fn wanted(inputs: &Inputs, default_pod_network: &str) -> Wanted {
    let redirects = redirects(inputs);
    let mut services = BTreeMap::new();
    let mut local_backends = BTreeSet::new();
    for (id, service) in &inputs.services {
        let Some(endpoints) = inputs.endpoints.get(id) else {
            continue;
        };
        if service.service_type == "ExternalName" {
            continue;
        }
        services.insert(id.clone(), contiv_service(inputs, &redirects, service, endpoints));
        local_backends.extend(local_pods_behind(inputs, &redirects, endpoints));
    }
    Wanted {
        node_ips: node_ips(inputs),
        services,
        frontend_ifs: frontend_ifs(inputs, default_pod_network),
        backend_ifs: backend_ifs(inputs, &local_backends),
    }
}

fn redirects(inputs: &Inputs) -> BTreeMap<IpAddr, IpAddr> {
    let mut redirects = BTreeMap::new();
    for (id, allocation) in &inputs.allocations {
        let pod: Option<&LocalPod> = inputs.local_pods.get(id).or_else(|| inputs.remote_pods.get(id));
        let from = pod.and_then(|pod| address(&pod.ip));
        let last = allocation
            .interfaces
            .iter()
            .rfind(|interface| interface.service_endpoint);
        let to = last.and_then(|interface| before_slash(&interface.ip));
        if let (Some(from), Some(to)) = (from, to) {
            redirects.entry(from).or_insert(to);
        }
    }
    redirects
}

/// The effective target of an endpoint's address.
fn redirected(redirects: &BTreeMap<IpAddr, IpAddr>, text: &str) -> Option<IpAddr> {
    let address = address(text)?;
    Some(redirects.get(&address).copied().unwrap_or(address))
}

fn is_host_network(inputs: &Inputs, ip: IpAddr) -> bool {
    !is_in(&inputs.context.pod_subnet_all_nodes, ip)
}

fn is_local(inputs: &Inputs, ip: IpAddr) -> bool {
    let context = &inputs.context;
    let mut of_host = std::iter::once(&context.node_ip).chain(&context.host_ips);
    is_in(&context.pod_subnet_this_node, ip)
        || (is_host_network(inputs, ip) && of_host.any(|text| address(text) == Some(ip)))
}

fn contiv_service(
    inputs: &Inputs,
    redirects: &BTreeMap<IpAddr, IpAddr>,
    service: &Service,
    endpoints: &Endpoints,
) -> ContivService {
    let cluster_ip = Some(&service.cluster_ip).filter(|ip| !ip.is_empty() && *ip != "None");
    let ingress = service
        .lb_ingress_ips
        .iter()
        .filter(|_| service.service_type == "LoadBalancer");
    let ports: BTreeMap<&str, &_> = service.ports.iter().map(|port| (port.name.as_str(), port)).collect();
    let backends_of = |name: &str| {
        let mut found = BTreeSet::new();
        for subset in &endpoints.subsets {
            for port in subset.ports.iter().filter(|port| port.name == name) {
                let addresses = subset.addresses.iter();
                found.extend(addresses.filter_map(|at| Some((redirected(redirects, &at.ip)?, port.port))));
            }
        }
        let backends = found.into_iter().map(|(ip, port)| Backend {
            ip: ip.to_string(),
            port,
            local: is_local(inputs, ip),
            host_network: is_host_network(inputs, ip),
        });
        PortBackends {
            port_name: name.to_owned(),
            backends: backends.collect(),
        }
    };
    ContivService {
        id: service.id.clone(),
        traffic_policy: if service.external_traffic_policy == "Local" {
            TrafficPolicy::NodeLocal
        } else {
            TrafficPolicy::ClusterWide
        },
        session_affinity_timeout_s: if service.session_affinity == "ClientIP" {
            service.session_affinity_timeout_s
        } else {
            0
        },
        cluster_ips: in_order(cluster_ip.into_iter().filter_map(|ip| address(ip))),
        external_ips: in_order(service.external_ips.iter().chain(ingress).filter_map(|ip| address(ip))),
        backends: ports.keys().map(|name| backends_of(name)).collect(),
        ports: ports
            .values()
            .map(|port| ServicePort {
                name: port.name.clone(),
                protocol: match port.protocol {
                    Protocol::Tcp => Protocol::Tcp,
                    Protocol::Udp => Protocol::Udp,
                    Protocol::Sctp => Protocol::Sctp,
                },
                port: port.port,
                node_port: port.node_port,
            })
            .collect(),
    }
}

fn in_order(addresses: impl Iterator<Item = IpAddr>) -> Vec<String> {
    let set: BTreeSet<IpAddr> = addresses.collect();
    set.into_iter().map(|ip| ip.to_string()).collect()
}

fn local_pods_behind(inputs: &Inputs, redirects: &BTreeMap<IpAddr, IpAddr>, endpoints: &Endpoints) -> BTreeSet<Id> {
    let addresses = endpoints.subsets.iter().flat_map(|subset| &subset.addresses);
    let local = addresses.filter(|at| redirected(redirects, &at.ip).is_some_and(|ip| is_local(inputs, ip)));
    local.filter_map(|at| at.target_pod.as_ref().map(id_of)).collect()
}

fn node_ips(inputs: &Inputs) -> Vec<String> {
    let of_node = |node: &_| {
        let trueup_worlds::node::guests::nodesync::Node {
            vpp_ip_addresses,
            mgmt_ip_addresses,
            ..
        } = node;
        let vpp = vpp_ip_addresses.iter().filter_map(|ip| before_slash(ip));
        let mgmt = mgmt_ip_addresses.iter().filter_map(|ip| address(ip));
        vpp.chain(mgmt).collect::<Vec<_>>()
    };
    in_order(inputs.nodes.iter().flat_map(of_node))
}

/// Skips empty names.
fn names<'a>(interfaces: impl Iterator<Item = &'a str>) -> Vec<String> {
    let set: BTreeSet<&str> = interfaces.filter(|name| !name.is_empty()).collect();
    set.into_iter().map(str::to_owned).collect()
}

fn frontend_ifs(inputs: &Inputs, default_pod_network: &str) -> Vec<String> {
    let context = &inputs.context;
    let own = [
        &context.vxlan_bvi_interface,
        &context.main_interface,
        &context.host_interconnect_interface,
    ];
    let own = own.into_iter().chain(&context.other_interfaces).map(String::as_str);
    let of_pods = inputs
        .local_pods
        .values()
        .filter_map(|pod| pod.interface_name.as_deref());
    let allocated = inputs
        .allocations
        .iter()
        .filter(|(id, _)| inputs.local_pods.contains_key(*id));
    let custom = allocated.flat_map(|(_, allocation)| &allocation.interfaces);
    let custom = custom.filter(|it| it.network.is_empty() || it.network == default_pod_network);
    names(
        own.chain(of_pods)
            .chain(custom.filter_map(|it| it.interface_name.as_deref())),
    )
}

fn backend_ifs(inputs: &Inputs, local_backends: &BTreeSet<Id>) -> Vec<String> {
    let context = &inputs.context;
    let uplink = if context.vxlan_bvi_interface.is_empty() {
        &context.main_interface
    } else {
        &context.vxlan_bvi_interface
    };
    let of_pods = local_backends.iter().filter_map(|id| {
        let pod = inputs.local_pods.get(id)?;
        let interfaces = inputs.allocations.get(id).map(|it| it.interfaces.as_slice());
        let last = interfaces.unwrap_or_default().iter().rfind(|it| it.service_endpoint);
        let custom = last
            .and_then(|it| it.interface_name.as_deref())
            .filter(|name| !name.is_empty());
        custom.or(pod.interface_name.as_deref())
    });
    let own = [uplink, &context.host_interconnect_interface];
    names(own.into_iter().map(String::as_str).chain(of_pods))
}
