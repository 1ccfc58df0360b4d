//! Whole calls against a simulated database, rule by rule; and properties of any sequence of events.

mod mapping;
mod model;
mod properties;
mod restarting;
mod writing;

use crate::bindings::trueup::kube::types::{ObjectId, Protocol};
use crate::bindings::trueup::service::types::{
    Backend, ContivService, PortBackends, ResyncEvent, ServicePort, TrafficPolicy,
};
use crate::renderer::Renderer;
use crate::settings::Settings;
use crate::simulated::Simulation;

/// The settings of most tests.
const CONFIG: &str = r#"{"agent_label": "a", "nat_loopback_ip": "10.1.1.254", "main_vrf_id": 1, "pod_vrf_id": 2}"#;

/// The prefix that the agent of these settings reads.
const PREFIX: &str = "/vnf-agent/a/config/vpp/nat/v2/";

/// A new instance with these settings as JSON.
fn instance(config: &str) -> Renderer {
    Renderer::new(Settings::read(config).unwrap())
}

/// A resync with only these.
fn event(services: Vec<ContivService>) -> ResyncEvent {
    ResyncEvent {
        node_ips: Vec::new(),
        services,
        frontend_ifs: Vec::new(),
        backend_ifs: Vec::new(),
    }
}

/// An instance after its first resync, without services.
fn synced(config: &str) -> (Renderer, Simulation) {
    let (mut renderer, mut world) = (instance(config), Simulation::default());
    renderer.resync(&mut world, event(Vec::new())).unwrap();
    world.take_asked();
    (renderer, world)
}

fn id(name: &str) -> ObjectId {
    ObjectId {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn list(texts: &str) -> Vec<String> {
    texts.split_whitespace().map(str::to_owned).collect()
}

/// A service `default/<name>` with these addresses and no ports.
fn service(name: &str, cluster_ips: &str, external_ips: &str) -> ContivService {
    ContivService {
        id: id(name),
        traffic_policy: TrafficPolicy::ClusterWide,
        session_affinity_timeout_s: 0,
        cluster_ips: list(cluster_ips),
        external_ips: list(external_ips),
        ports: Vec::new(),
        backends: Vec::new(),
    }
}

/// The service with one more TCP port. Backends are written `10.1.1.3#8080`; a trailing asterisk makes one local.
fn with_port(mut service: ContivService, name: &str, port: u16, node_port: u16, backends: &str) -> ContivService {
    service.ports.push(ServicePort {
        name: name.to_owned(),
        protocol: Protocol::Tcp,
        port,
        node_port,
    });
    service.backends.push(PortBackends {
        port_name: name.to_owned(),
        backends: backends.split_whitespace().map(backend).collect(),
    });
    service
}

fn backend(text: &str) -> Backend {
    let (address, local) = match text.strip_suffix('*') {
        Some(address) => (address, true),
        None => (text, false),
    };
    let (ip, port) = address.split_once('#').unwrap();
    Backend {
        ip: ip.to_owned(),
        port: port.parse().unwrap(),
        local,
        host_network: false,
    }
}

/// The value of a service's DNAT.
fn dnat(world: &Simulation, name: &str) -> String {
    world.etcd[&format!("{PREFIX}dnat44/default/{name}")].clone()
}
