//! Every scenario of `tests/scenarios/nftables`, natively: the part of the format that they use.

#![expect(clippy::disallowed_methods, reason = "scenarios are files")]

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::instance;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::renderer::Renderer;
use crate::settings::Settings;
use crate::simulated::Simulation;

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
    #[serde(default)]
    config: Value,
    expect_init_error: Option<String>,
    #[serde(default)]
    steps: Vec<Step>,
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
    restart: Option<Value>,
    expect_state: Option<Value>,
}

fn arg<T: DeserializeOwned>(args: &Value, name: &str) -> T {
    serde_json::from_value(args[name].clone()).unwrap()
}

fn call(renderer: &mut Renderer, world: &mut Simulation, call: &str, args: &Value) -> Result<(), String> {
    match call {
        "renderer.resync" => renderer.resync(world, arg::<ResyncEvent>(args, "event").services),
        "renderer.add-service" => renderer.add_service(world, arg(args, "service")),
        "renderer.update-service" => {
            renderer.update_service(world, arg::<ContivService>(args, "old").id, arg(args, "new"))
        }
        "renderer.delete-service" => renderer.delete_service(world, arg::<ContivService>(args, "service").id),
        other => panic!("{other}"),
    }
}

fn run(scenario: Scenario) -> usize {
    let name = scenario.name;
    let config = if scenario.config.is_null() {
        json!({})
    } else {
        scenario.config
    }
    .to_string();
    if let Some(text) = scenario.expect_init_error {
        let error = Settings::read(&config).unwrap_err();
        assert!(error.contains(&text), "{name}: {error}");
        return 1;
    }
    let (mut renderer, mut world) = (instance(&config), Simulation::default());
    let mut checked = 0;
    for (number, step) in scenario.steps.into_iter().enumerate() {
        let place = format!("{name}, step {number}");
        if let Some(called) = step.call {
            let answer = call(&mut renderer, &mut world, &called, &step.args);
            let asked = |text: String| json!({"call": "nftables.apply", "args": {"ruleset": text}});
            let calls: Vec<Value> = world.take_asked().into_iter().map(asked).collect();
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
            assert_eq!(fault["call"], "nftables.apply", "{place}");
            world.faults.push_back(arg(&fault, "error"));
        } else if let Some(restart) = step.restart {
            assert_eq!(restart, json!({"carry_state": true}), "{place}");
            let snapshot = renderer.snapshot();
            renderer = instance(&config);
            renderer.restore(&mut world, &snapshot).unwrap();
        } else {
            let metrics = step.expect_state.unwrap()["metrics"].clone();
            for (metric, expected) in metrics.as_object().unwrap() {
                assert_eq!(world.metrics[metric] as f64, expected.as_f64().unwrap(), "{place}");
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn every_scenario_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/nftables");
    for file in ["updates.yaml", "errors.yaml", "settings.yaml"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let scenarios = match serde_saphyr::from_str(&text).unwrap() {
            File::Many(scenarios) => scenarios,
            File::One(scenario) => vec![*scenario],
        };
        for scenario in scenarios {
            let name = scenario.name.clone();
            assert!(run(scenario) > 0, "{name} checks nothing");
        }
    }
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(files, 3, "a file is there that is not read here");
}
