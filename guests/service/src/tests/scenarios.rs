//! The scenario files that specify this guest, against its native code.

use std::path::Path;

use serde_json::{Map, Value, json};
use trueup_guest_common::scenarios::{Subject, Transcript, run};

use crate::processor::Processor;
use crate::settings::Settings;
use crate::simulated::Simulation;

struct Scenario {
    processor: Processor,
    world: Simulation,
}

fn arg<T: serde::de::DeserializeOwned>(args: &Value, name: &str) -> T {
    serde_json::from_value(args[name].clone()).unwrap()
}

impl Subject for Scenario {
    fn start(config: &str, given: &Map<String, Value>) -> Result<Self, String> {
        assert!(given.is_empty(), "this guest has no world before");
        let processor = Processor::new(Settings::read(config)?);
        let world = Simulation::default();
        Ok(Self { processor, world })
    }

    fn call(&mut self, export: &str, args: Value) -> Value {
        let Self { processor, world } = self;
        match export {
            "processor.resync" => json!(processor.resync(world, arg(&args, "state"))),
            "processor.update" => json!(processor.update(world, arg(&args, "event"))),
            "processor.revert" => json!(processor.revert(world, arg(&args, "pod"))),
            _ => panic!("no export {export}"),
        }
    }

    fn restart(&mut self, config: &str, carry_state: bool) {
        let snapshot = self.processor.snapshot();
        self.processor = Processor::new(Settings::read(config).unwrap());
        if carry_state {
            self.processor.restore(&mut self.world, &snapshot).unwrap();
        }
    }

    fn state(&self, part: &str) -> Value {
        panic!("this guest has no {part}")
    }

    fn transcript(&mut self) -> &mut Transcript {
        &mut self.world.transcript
    }
}

#[test]
fn every_scenario_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/service");
    assert_eq!(
        run::<Scenario>(&folder),
        24,
        "the scenarios in {} are counted here, so that none is lost",
        folder.display()
    );
}
