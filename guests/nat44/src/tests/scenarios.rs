//! Every scenario of `tests/scenarios/nat44`, natively: the part of the format that they use.

#![expect(clippy::disallowed_methods, reason = "scenarios are files")]

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::instance;
use crate::bindings::trueup::service::types::ContivService;
use crate::renderer::Renderer;
use crate::settings::Settings;
use crate::simulated::{Asked, Simulation};

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Many(Vec<Scenario>),
    One(Box<Scenario>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    #[serde(rename = "guest")]
    _guest: String,
    config: Value,
    expect_init_error: Option<String>,
    #[serde(default)]
    given: Given,
    #[serde(default)]
    steps: Vec<Step>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    etcd: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    call: Option<String>,
    #[serde(default)]
    args: Value,
    expect: Option<Value>,
    expect_calls: Option<Vec<Value>>,
    fault: Option<Value>,
    expect_state: Option<State>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    etcd: Option<BTreeMap<String, String>>,
    #[serde(default)]
    metrics: BTreeMap<String, f64>,
}

fn arg<T: DeserializeOwned>(args: &Value, name: &str) -> T {
    serde_json::from_value(args[name].clone()).unwrap()
}

fn call(renderer: &mut Renderer, world: &mut Simulation, call: &str, args: &Value) -> Result<(), String> {
    let service = |name| arg::<ContivService>(args, name);
    match call {
        "renderer.resync" => renderer.resync(world, arg(args, "event")),
        "renderer.add-service" => renderer.add_service(world, &service("service")),
        "renderer.update-service" => renderer.update_service(world, &service("old").id, &service("new")),
        "renderer.delete-service" => renderer.delete_service(world, &service("service").id),
        "renderer.update-node-port-services" => {
            let services: Vec<ContivService> = arg(args, "services");
            renderer.update_node_port_services(world, &arg::<Vec<String>>(args, "node_ips"), &services)
        }
        "renderer.update-local-frontend-ifs" => renderer.update_local_frontend_ifs(world, arg(args, "new")),
        "renderer.update-local-backend-ifs" => renderer.update_local_backend_ifs(world, arg(args, "new")),
        other => panic!("{other}"),
    }
}

fn written(asked: Asked) -> Value {
    match asked {
        Asked::ListPrefix(prefix) => json!({"call": "kv.list-prefix", "args": {"prefix": prefix}}),
        Asked::Commit(operations) => {
            json!({"call": "kv.commit", "args": {"compares": [], "operations": operations}})
        }
    }
}

/// How much was checked.
fn run(scenario: Scenario) -> usize {
    let name = scenario.name;
    let config = scenario.config.to_string();
    if let Some(text) = scenario.expect_init_error {
        let error = Settings::read(&config).unwrap_err();
        assert!(error.contains(&text), "{name}: {error}");
        return 1;
    }
    let (mut renderer, mut world) = (instance(&config), Simulation::default());
    world.etcd = scenario.given.etcd;
    let mut checked = 0;
    for (number, step) in scenario.steps.into_iter().enumerate() {
        let place = format!("{name}, step {number}");
        if let Some(called) = step.call {
            let answer = call(&mut renderer, &mut world, &called, &step.args);
            let calls: Vec<Value> = world.take_asked().into_iter().map(written).collect();
            if let Some(expected) = step.expect {
                let answer = match answer {
                    Ok(()) => json!({"Ok": null}),
                    Err(error) => json!({"Err": error}),
                };
                assert_eq!(answer, expected, "{place}");
                checked += 1;
            }
            if let Some(expected) = step.expect_calls {
                assert_eq!(calls, expected, "{place}");
                checked += 1;
            }
        } else if let Some(fault) = step.fault {
            let calls = ["kv.commit", "kv.list-prefix"];
            let call = calls.into_iter().find(|call| fault["call"] == *call).unwrap();
            world.fail(call, arg(&fault, "error"));
        } else {
            let state = step.expect_state.unwrap();
            if let Some(etcd) = state.etcd {
                assert_eq!(world.etcd, etcd, "{place}");
                checked += 1;
            }
            for (metric, expected) in state.metrics {
                assert_eq!(world.metrics[&metric] as f64, expected, "{place}");
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn every_scenario_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/nat44");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let scenarios = match serde_saphyr::from_str(&text).unwrap() {
            File::Many(scenarios) => scenarios,
            File::One(scenario) => vec![*scenario],
        };
        for scenario in scenarios {
            let name = scenario.name.clone();
            assert!(run(scenario) > 0, "{name} checks nothing");
        }
        files += 1;
    }
    assert!(files > 0);
}
