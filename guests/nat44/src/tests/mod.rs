//! Whole calls against a simulated database, rule by rule; and properties of any sequence of events.

mod mapping;
mod model;
mod properties;
#[path = "../../../nodesync/src/tests/refusing.rs"]
mod refusing;
mod restarting;
mod services;
mod writing;

use self::services::{id, list, service, with_port};
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::renderer::Renderer;
use crate::simulated::Simulation;
use trueup_guest::Guest as _;

/// The settings of most tests.
const CONFIG: &str = r#"{"agent_label": "a", "nat_loopback_ip": "10.1.1.254", "main_vrf_id": 1, "pod_vrf_id": 2}"#;

/// The prefix that the agent of these settings reads.
const PREFIX: &str = "/vnf-agent/a/config/vpp/nat/v2/";

/// A new instance with these settings as JSON.
fn instance(config: &str) -> Renderer {
    Renderer::init(config).unwrap()
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

/// The value of a service's DNAT.
fn dnat(world: &Simulation, name: &str) -> String {
    world.etcd[&format!("{PREFIX}dnat44/default/{name}")].clone()
}
