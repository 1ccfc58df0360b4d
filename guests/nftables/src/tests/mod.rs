//! Whole calls against simulated tables, rule by rule; properties of any sequence; and the real nft.

mod claiming;
mod kernel;
mod properties;
#[path = "../../../nodesync/src/tests/refusing.rs"]
mod refusing;
mod restarting;
mod rules;
#[path = "../../../nat44/src/tests/services.rs"]
mod services;

use self::services::{id, service, with_port};
use crate::renderer::Renderer;
use crate::simulated::Simulation;
use trueup_guest::Guest as _;

/// The settings of most tests.
const CONFIG: &str = r#"{"families": ["ip"], "pod_subnets": ["10.1.0.0/16"]}"#;

/// A new instance with these settings as JSON.
fn instance(config: &str) -> Renderer {
    Renderer::init(config).unwrap()
}

/// An instance after its first resync, without services.
fn synced(config: &str) -> (Renderer, Simulation) {
    let (mut renderer, mut world) = (instance(config), Simulation::default());
    renderer.resync(&mut world, Vec::new()).unwrap();
    world.take_asked();
    (renderer, world)
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
