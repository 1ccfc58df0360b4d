//! The container runtime: a list of sandboxes.

use std::sync::Arc;

use trueup_capabilities::cri::Sandbox;
use trueup_capabilities::cri::simulated::Simulated;

use super::super::fields::records;
use super::{Capability, Simulation};

pub(super) const CAPABILITY: Capability = Capability {
    key: "sandboxes",
    imports: &["sandboxes.list-running"],
    given: Some(|node, place| records(node, place, &["id", "ip", "namespace", "name"])),
    expected: None,
    on_operation: None,
    start: |world, given| {
        let sandboxes: Option<Vec<Sandbox>> = serde_json::from_value(given)?;
        let runtime = Arc::new(Simulated::new(world.faults.clone(), sandboxes.unwrap_or_default()));
        world.backends.sandboxes = Some(runtime.clone());
        Ok(runtime)
    },
};

impl Simulation for Simulated {}
