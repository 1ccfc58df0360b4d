//! The scenario files that specify this guest, against its native code.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use trueup_guest_common::scenarios::{Subject, Transcript, run};

use super::instance;
use crate::bindings::trueup::service::types::ContivService;
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
        let mut world = Simulation::default();
        for (part, value) in given {
            assert_eq!(part, "etcd");
            world.etcd = serde_json::from_value(value.clone()).unwrap();
        }
        let renderer = Renderer::new(Settings::read(config)?);
        Ok(Self { renderer, world })
    }

    fn call(&mut self, export: &str, args: Value) -> Value {
        let Self { renderer, world } = self;
        let service = |name| arg::<ContivService>(&args, name);
        json!(match export {
            "renderer.resync" => renderer.resync(world, arg(&args, "event")),
            "renderer.add-service" => renderer.add_service(world, &service("service")),
            "renderer.update-service" => renderer.update_service(world, &service("old").id, &service("new")),
            "renderer.delete-service" => renderer.delete_service(world, &service("service").id),
            "renderer.update-node-port-services" => {
                let services: Vec<ContivService> = arg(&args, "services");
                renderer.update_node_port_services(world, &arg::<Vec<String>>(&args, "node_ips"), &services)
            }
            "renderer.update-local-frontend-ifs" => renderer.update_local_frontend_ifs(world, arg(&args, "new")),
            "renderer.update-local-backend-ifs" => renderer.update_local_backend_ifs(world, arg(&args, "new")),
            _ => panic!("no export {export}"),
        })
    }

    fn restart(&mut self, config: &str, carry_state: bool) {
        let snapshot = self.renderer.snapshot();
        self.renderer = instance(config);
        if carry_state {
            self.renderer.restore(&snapshot).unwrap();
        }
    }

    fn state(&self, part: &str) -> Value {
        assert_eq!(part, "etcd");
        json!(self.world.etcd)
    }

    fn transcript(&mut self) -> &mut Transcript {
        &mut self.world.transcript
    }
}

#[test]
fn every_scenario_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/nat44");
    assert_eq!(
        run::<Scenario>(&folder),
        18,
        "the scenarios in {} are counted here, so that none is lost",
        folder.display()
    );
}
