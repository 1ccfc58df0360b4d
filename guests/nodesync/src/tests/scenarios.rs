//! The scenario files that specify this guest, against its native code.

use std::path::Path;

use serde_json::{Map, Value, json};
use trueup_guest_common::scenarios::{Subject, Transcript, run};

use crate::node_sync::NodeSync;
use crate::settings::Settings;
use crate::simulated::Simulation;

struct Scenario {
    node_sync: NodeSync,
    world: Simulation,
}

fn arg<T: serde::de::DeserializeOwned>(args: &Value, name: &str) -> T {
    serde_json::from_value(args[name].clone()).unwrap()
}

impl Subject for Scenario {
    fn start(config: &str, given: &Map<String, Value>) -> Result<Self, String> {
        let mut world = Simulation::default();
        for (part, value) in given {
            assert_eq!(part, "etcd");
            world.store = serde_json::from_value(value.clone()).unwrap();
        }
        let node_sync = NodeSync::new(Settings::read(config)?);
        Ok(Self { node_sync, world })
    }

    fn call(&mut self, export: &str, args: Value) -> Value {
        let Self { node_sync, world } = self;
        match export {
            "node-sync.resync" => json!(node_sync.resync(world, arg(&args, "state"))),
            "node-sync.update" => json!(node_sync.update(world, arg(&args, "change"))),
            "node-sync.get-node-id" => json!(node_sync.node_id()),
            "node-sync.get-all-nodes" => json!(node_sync.all_nodes()),
            "node-sync.publish-node-ips" => {
                let addresses: Vec<String> = arg(&args, "addresses");
                json!(node_sync.publish_node_ips(world, &addresses, arg(&args, "version")))
            }
            _ => panic!("no export {export}"),
        }
    }

    fn restart(&mut self, config: &str, carry_state: bool) {
        let snapshot = self.node_sync.snapshot();
        self.node_sync = NodeSync::new(Settings::read(config).unwrap());
        if carry_state {
            self.node_sync.restore(&mut self.world, &snapshot).unwrap();
        }
    }

    fn state(&self, part: &str) -> Value {
        assert_eq!(part, "etcd");
        json!(self.world.store)
    }

    fn transcript(&mut self) -> &mut Transcript {
        &mut self.world.transcript
    }
}

#[test]
fn every_scenario_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/nodesync");
    assert_eq!(
        run::<Scenario>(&folder),
        17,
        "the scenarios in {} are counted here, so that none is lost",
        folder.display()
    );
}
