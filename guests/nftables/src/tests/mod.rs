//! Whole calls against simulated tables, rule by rule; properties of any sequence; and the real nft.

mod claiming;
mod kernel;
mod properties;
mod restarting;
mod rules;

use crate::bindings::trueup::kube::types::{ObjectId, Protocol};
use crate::bindings::trueup::service::types::{Backend, ContivService, PortBackends, ServicePort, TrafficPolicy};
use crate::renderer::Renderer;
use crate::settings::Settings;
use crate::simulated::Simulation;

/// The settings of most tests.
const CONFIG: &str = r#"{"families": ["ip"], "pod_subnets": ["10.1.0.0/16"]}"#;

/// A new instance with these settings as JSON.
fn instance(config: &str) -> Renderer {
    Renderer::new(Settings::read(config).unwrap())
}

/// An instance after its first resync, without services.
fn synced(config: &str) -> (Renderer, Simulation) {
    let (mut renderer, mut world) = (instance(config), Simulation::default());
    renderer.resync(&mut world, Vec::new()).unwrap();
    world.take_asked();
    (renderer, world)
}

fn id(name: &str) -> ObjectId {
    ObjectId {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// A service `default/<name>` with these addresses and no ports.
fn service(name: &str, cluster_ips: &str, external_ips: &str) -> ContivService {
    let list = |texts: &str| texts.split_whitespace().map(str::to_owned).collect();
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

/// The table's maps, a line for each element: `service-ips 10.96.0.1 tcp 80: svc/default/web/http`.
fn elements(world: &Simulation, family: &str) -> Vec<String> {
    let table = &world.tables[&(family.to_owned(), "trueup".to_owned())];
    let mut lines = Vec::new();
    for (map, (_, elements)) in table.sets.iter().filter(|(name, _)| *name != "pod-subnets") {
        for element in elements.values() {
            let parts = element[0]["concat"].as_array().unwrap().iter();
            let parts: Vec<String> = parts.map(|part| part.to_string().replace('"', "")).collect();
            let target = element[1]["goto"]["target"].as_str().unwrap();
            lines.push(format!("{map} {}: {target}", parts.join(" ")));
        }
    }
    lines
}

/// The names of the chains that services have, and how many rules each has.
fn chains(world: &Simulation, family: &str) -> Vec<String> {
    let table = &world.tables[&(family.to_owned(), "trueup".to_owned())];
    let chains = table.chains.iter().filter(|(name, _)| name.contains('/'));
    chains
        .map(|(name, (_, rules))| format!("{name}: {}", rules.len()))
        .collect()
}

/// The rules of a chain: the `expr` of each, followed by its comment.
fn rules(world: &Simulation, family: &str, chain: &str) -> Vec<String> {
    let table = &world.tables[&(family.to_owned(), "trueup".to_owned())];
    let rules = table.chains[chain].1.iter();
    rules
        .map(|rule| match rule["comment"].as_str() {
            Some(comment) => format!("{} # {comment}", rule["expr"]),
            None => rule["expr"].to_string(),
        })
        .collect()
}
