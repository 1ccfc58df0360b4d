//! The scenario files that specify this guest, against its native code.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use trueup_guest_common::scenarios::{Subject, Transcript, run};

use super::instance;
use crate::bindings::trueup::service::types::{ContivService, ResyncEvent};
use crate::renderer::Renderer;
use crate::settings::Settings;
use crate::simulated::Simulation;

struct Scenario {
    renderer: Renderer,
    world: Simulation,
}

fn arg<T: DeserializeOwned>(args: &Value, name: &str) -> T {
    serde_json::from_value(args[name].clone()).unwrap()
}

impl Subject for Scenario {
    fn start(config: &str, given: &Map<String, Value>) -> Result<Self, String> {
        assert!(given.is_empty(), "{given:?}");
        let renderer = Renderer::new(Settings::read(config)?);
        let world = Simulation::default();
        Ok(Self { renderer, world })
    }

    fn call(&mut self, export: &str, args: Value) -> Value {
        let Self { renderer, world } = self;
        let service = |name| arg::<ContivService>(&args, name);
        json!(match export {
            "renderer.resync" => renderer.resync(world, arg::<ResyncEvent>(&args, "event").services),
            "renderer.add-service" => renderer.add_service(world, service("service")),
            "renderer.update-service" => renderer.update_service(world, service("old").id, service("new")),
            "renderer.delete-service" => renderer.delete_service(world, service("service").id),
            _ => panic!("no export {export}"),
        })
    }

    fn restart(&mut self, config: &str, carry_state: bool) {
        let snapshot = self.renderer.snapshot();
        self.renderer = instance(config);
        if carry_state {
            self.renderer.restore(&mut self.world, &snapshot).unwrap();
        }
    }

    fn state(&self, part: &str) -> Value {
        panic!("no part {part}")
    }

    fn transcript(&mut self) -> &mut Transcript {
        &mut self.world.transcript
    }
}

#[test]
fn every_scenario_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/nftables");
    assert_eq!(
        run::<Scenario>(&folder),
        6,
        "the scenarios in {} are counted here, so that none is lost",
        folder.display()
    );
}
