//! The renderers of a service processor: accept everything.

use std::sync::Arc;

use trueup_capabilities::renderer::simulated::Simulated;

use super::{Capability, Simulation};

pub(super) const CAPABILITY: Capability = Capability {
    key: "renderers",
    imports: &[
        "renderer.add-service",
        "renderer.delete-service",
        "renderer.resync",
        "renderer.update-local-backend-ifs",
        "renderer.update-local-frontend-ifs",
        "renderer.update-node-port-services",
        "renderer.update-service",
    ],
    given: None,
    expected: None,
    on_operation: None,
    start: |world, _| {
        let renderers = Arc::new(Simulated::new(world.faults.clone()));
        world.backends.renderers = Some(renderers.clone());
        Ok(renderers)
    },
};

impl Simulation for Simulated {}
