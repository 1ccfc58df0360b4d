//! The specification taken literally: keeps raw inputs, computes everything again for each event, and compares
//! everything for differences. Slow, without indexes, and shares only the contract's types with the guest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::bindings::exports::trueup::service::processor::{
    CustomInterface, CustomIpAllocation, Event, LocalPod, NodeContext, State,
};
use crate::bindings::trueup::kube::types::{Endpoints, ObjectId, Service};
use crate::bindings::trueup::nodesync::types::Node;
use crate::bindings::trueup::service::types::{
    Backend, ContivService, PortBackends, ResyncEvent, ServicePort, TrafficPolicy,
};
use crate::world::{Rendered, World};

/// namespace, name
pub(super) type Name = (String, String);

fn name(id: &ObjectId) -> Name {
    (id.namespace.clone(), id.name.clone())
}

fn parse(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn bits(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => format!("{:032b}", ip.to_bits()),
        IpAddr::V6(ip) => format!("{:0128b}", ip.to_bits()),
    }
}

fn is_in(ip: IpAddr, subnet: &str) -> bool {
    let Some((address, length)) = subnet.split_once('/') else {
        return false;
    };
    let (Some(address), Ok(length)) = (parse(address), length.parse::<usize>()) else {
        return false;
    };
    let (ip, address) = (bits(ip), bits(address));
    ip.len() == address.len() && length <= ip.len() && ip[..length] == address[..length]
}

fn texts(ips: &BTreeSet<IpAddr>) -> Vec<String> {
    ips.iter().map(IpAddr::to_string).collect()
}

/// The actual or the desired state of the renderers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rendering {
    pub(super) node_ips: Vec<String>,
    pub(super) services: BTreeMap<Name, ContivService>,
    pub(super) frontends: Vec<String>,
    pub(super) backends: Vec<String>,
}

impl Rendering {
    pub(super) fn of(event: ResyncEvent) -> Self {
        Self {
            node_ips: event.node_ips,
            services: event
                .services
                .into_iter()
                .map(|service| (name(&service.id), service))
                .collect(),
            frontends: event.frontend_ifs,
            backends: event.backend_ifs,
        }
    }

    pub(super) fn event(&self) -> ResyncEvent {
        ResyncEvent {
            node_ips: self.node_ips.clone(),
            services: self.services.values().cloned().collect(),
            frontend_ifs: self.frontends.clone(),
            backend_ifs: self.backends.clone(),
        }
    }

    pub(super) fn with_node_ports(&self) -> Vec<ContivService> {
        let has = |service: &&ContivService| service.ports.iter().any(|port| port.node_port > 0);
        self.services.values().filter(has).cloned().collect()
    }
}

/// The raw inputs.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    context: NodeContext,
    nodes: Vec<Node>,
    local: BTreeMap<Name, LocalPod>,
    remote: BTreeMap<Name, LocalPod>,
    endpoints: BTreeMap<Name, Endpoints>,
    services: BTreeMap<Name, Service>,
    allocations: BTreeMap<Name, CustomIpAllocation>,
}

impl Inputs {
    fn of(state: State) -> Self {
        Self {
            context: state.context,
            nodes: state.nodes,
            local: state.local_pods.into_iter().map(|pod| (name(&pod.id), pod)).collect(),
            remote: state.remote_pods.into_iter().map(|pod| (name(&pod.id), pod)).collect(),
            endpoints: state.endpoints.into_iter().map(|of| (name(&of.id), of)).collect(),
            services: state.services.into_iter().map(|of| (name(&of.id), of)).collect(),
            allocations: state.ip_allocations.into_iter().map(|of| (name(&of.pod), of)).collect(),
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::ServicePut(of) => drop(self.services.insert(name(&of.id), of)),
            Event::ServiceDeleted(id) => drop(self.services.remove(&name(&id))),
            Event::EndpointsPut(of) => drop(self.endpoints.insert(name(&of.id), of)),
            Event::EndpointsDeleted(id) => drop(self.endpoints.remove(&name(&id))),
            Event::IpAllocationPut(of) => drop(self.allocations.insert(name(&of.pod), of)),
            Event::PodAdded(pod) => drop(self.local.insert(name(&pod.id), pod)),
            Event::RemotePodPut(pod) => drop(self.remote.insert(name(&pod.id), pod)),
            Event::PodDeleted(id) => {
                self.local.remove(&name(&id));
                if !self.remote.contains_key(&name(&id)) {
                    self.allocations.remove(&name(&id));
                }
            }
            Event::RemotePodDeleted(id) => {
                self.remote.remove(&name(&id));
                if !self.local.contains_key(&name(&id)) {
                    self.allocations.remove(&name(&id));
                }
            }
            Event::Nodes(nodes) => self.nodes = nodes,
        }
    }

    fn last_endpoint(&self, pod: &Name) -> Option<&CustomInterface> {
        let interfaces = self.allocations.get(pod)?.interfaces.iter();
        interfaces.rev().find(|interface| interface.service_endpoint)
    }

    fn redirected(&self, ip: IpAddr) -> IpAddr {
        // By pod id, so that the first requesting pod counts.
        for pod in self.allocations.keys() {
            let known = self.local.get(pod).or_else(|| self.remote.get(pod));
            let target = self
                .last_endpoint(pod)
                .and_then(|endpoint| parse(endpoint.ip.split('/').next().unwrap()));
            if let (Some(known), Some(target)) = (known, target)
                && parse(&known.ip) == Some(ip)
            {
                return target;
            }
        }
        ip
    }

    fn is_host_network(&self, ip: IpAddr) -> bool {
        !is_in(ip, &self.context.pod_subnet_all_nodes)
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        let mut own = self.context.host_ips.iter().chain([&self.context.node_ip]);
        is_in(ip, &self.context.pod_subnet_this_node)
            || (self.is_host_network(ip) && own.any(|text| parse(text) == Some(ip)))
    }

    fn service(&self, of: &Service, endpoints: &Endpoints) -> ContivService {
        let ips = |lists: &[&Vec<String>]| {
            texts(
                &lists
                    .iter()
                    .flat_map(|list| list.iter())
                    .filter_map(|text| parse(text))
                    .collect(),
            )
        };
        let none = Vec::new();
        let cluster_ip = vec![of.cluster_ip.clone()];
        let has_ingress = of.service_type == "LoadBalancer";
        let ports: BTreeMap<&String, _> = of.ports.iter().map(|port| (&port.name, port)).collect();
        let port_backends = |port_name: &&String| {
            let mut found: BTreeSet<(IpAddr, u16)> = BTreeSet::new();
            for subset in &endpoints.subsets {
                for port in subset.ports.iter().filter(|port| port.name == **port_name) {
                    let ips = subset.addresses.iter().filter_map(|address| parse(&address.ip));
                    found.extend(ips.map(|ip| (self.redirected(ip), port.port)));
                }
            }
            let backend = |(ip, port): (IpAddr, u16)| Backend {
                ip: ip.to_string(),
                port,
                local: self.is_local(ip),
                host_network: self.is_host_network(ip),
            };
            PortBackends {
                port_name: (*port_name).clone(),
                backends: found.into_iter().map(backend).collect(),
            }
        };
        ContivService {
            id: of.id.clone(),
            traffic_policy: match of.external_traffic_policy.as_str() {
                "Local" => TrafficPolicy::NodeLocal,
                _ => TrafficPolicy::ClusterWide,
            },
            session_affinity_timeout_s: match of.session_affinity.as_str() {
                "ClientIP" => of.session_affinity_timeout_s,
                _ => 0,
            },
            cluster_ips: ips(&[&cluster_ip]),
            external_ips: ips(&[&of.external_ips, if has_ingress { &of.lb_ingress_ips } else { &none }]),
            backends: ports.keys().map(port_backends).collect(),
            ports: ports
                .into_values()
                .map(|port| ServicePort {
                    name: port.name.clone(),
                    protocol: port.protocol,
                    port: port.port,
                    node_port: port.node_port,
                })
                .collect(),
        }
    }

    /// The function of the inputs.
    pub(super) fn rendering(&self) -> Rendering {
        let context = &self.context;
        let mut frontends: BTreeSet<String> = context.other_interfaces.iter().cloned().collect();
        frontends.insert(context.vxlan_bvi_interface.clone());
        frontends.insert(context.main_interface.clone());
        frontends.insert(context.host_interconnect_interface.clone());
        for (id, pod) in &self.local {
            frontends.extend(pod.interface_name.clone());
            let interfaces = self
                .allocations
                .get(id)
                .map(|of| of.interfaces.clone())
                .unwrap_or_default();
            let default = |of: &CustomInterface| ["", "default"].contains(&of.network.as_str());
            frontends.extend(
                interfaces
                    .into_iter()
                    .filter(default)
                    .filter_map(|of| of.interface_name),
            );
        }
        let mut backends = BTreeSet::from([context.host_interconnect_interface.clone()]);
        if context.vxlan_bvi_interface.is_empty() {
            backends.insert(context.main_interface.clone());
        } else {
            backends.insert(context.vxlan_bvi_interface.clone());
        }
        let mut services = BTreeMap::new();
        for (id, service) in self
            .services
            .iter()
            .filter(|(_, service)| service.service_type != "ExternalName")
        {
            let Some(endpoints) = self.endpoints.get(id) else {
                continue;
            };
            services.insert(id.clone(), self.service(service, endpoints));
            for address in endpoints.subsets.iter().flat_map(|subset| &subset.addresses) {
                let is_local = parse(&address.ip).is_some_and(|ip| self.is_local(self.redirected(ip)));
                let pod = address.target_pod.as_ref().map(name).filter(|_| is_local);
                if let Some((id, pod)) = pod.and_then(|id| Some((id.clone(), self.local.get(&id)?))) {
                    let own = self
                        .last_endpoint(&id)
                        .and_then(|endpoint| endpoint.interface_name.clone());
                    backends.extend(
                        own.filter(|name| !name.is_empty())
                            .or_else(|| pod.interface_name.clone()),
                    );
                }
            }
        }
        let data_plane = self.nodes.iter().flat_map(|node| &node.vpp_ip_addresses);
        let data_plane = data_plane.filter_map(|text| parse(text.split('/').next().unwrap()));
        let management = self.nodes.iter().flat_map(|node| &node.mgmt_ip_addresses);
        let node_ips = data_plane.chain(management.filter_map(|text| parse(text))).collect();
        frontends.remove("");
        backends.remove("");
        Rendering {
            node_ips: texts(&node_ips),
            services,
            frontends: frontends.into_iter().collect(),
            backends: backends.into_iter().collect(),
        }
    }
}

/// The processor by the letter.
pub(super) struct Model {
    pub(super) inputs: Inputs,
    acknowledged: Rendering,
    is_in_step: bool,
}

impl Model {
    /// Applies the renderers' answers.
    pub(super) fn resync(world: &mut impl World, state: State) -> (Self, Rendered) {
        let mut model = Self {
            inputs: Inputs::of(state),
            acknowledged: Rendering::default(),
            is_in_step: false,
        };
        let result = model.hand_over(world);
        (model, result)
    }

    fn hand_over(&mut self, world: &mut impl World) -> Rendered {
        let wanted = self.inputs.rendering();
        world.resync(&wanted.event())?;
        self.acknowledged = wanted;
        self.is_in_step = true;
        Ok(())
    }

    pub(super) fn update(&mut self, world: &mut impl World, event: Event) -> Rendered {
        let frontends_last = matches!(event, Event::PodDeleted(_));
        self.inputs.take(event);
        if !self.is_in_step {
            return self.hand_over(world);
        }
        let wanted = self.inputs.rendering();
        let mut answers = Vec::new();
        if !frontends_last {
            answers.push(self.tell_frontends(world, &wanted));
        }
        let names: BTreeSet<Name> = self
            .acknowledged
            .services
            .keys()
            .chain(wanted.services.keys())
            .cloned()
            .collect();
        for name in names {
            let answer = match (self.acknowledged.services.get(&name), wanted.services.get(&name)) {
                (Some(old), Some(new)) if old == new => continue,
                (Some(old), Some(new)) => world.update_service(old, new),
                (None, Some(new)) => world.add_service(new),
                (Some(old), None) => world.delete_service(old),
                (None, None) => continue,
            };
            if answer.is_ok() {
                match wanted.services.get(&name) {
                    Some(new) => self.acknowledged.services.insert(name, new.clone()),
                    None => self.acknowledged.services.remove(&name),
                };
            }
            answers.push(answer);
        }
        if self.acknowledged.node_ips != wanted.node_ips {
            let services = self.acknowledged.with_node_ports();
            let answer = world.update_node_port_services(&wanted.node_ips, &services);
            if answer.is_ok() {
                self.acknowledged.node_ips = wanted.node_ips.clone();
            }
            answers.push(answer);
        }
        if self.acknowledged.backends != wanted.backends {
            let answer = world.update_local_backend_ifs(&self.acknowledged.backends, &wanted.backends);
            if answer.is_ok() {
                self.acknowledged.backends = wanted.backends.clone();
            }
            answers.push(answer);
        }
        if frontends_last {
            answers.push(self.tell_frontends(world, &wanted));
        }
        answers.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }

    fn tell_frontends(&mut self, world: &mut impl World, wanted: &Rendering) -> Rendered {
        if self.acknowledged.frontends == wanted.frontends {
            return Ok(());
        }
        world.update_local_frontend_ifs(&self.acknowledged.frontends, &wanted.frontends)?;
        self.acknowledged.frontends = wanted.frontends.clone();
        Ok(())
    }
}
