//! The renderers of a service processor: accept everything.

use std::sync::Arc;

use trueup_capabilities::renderer::simulated::Simulated;

use super::{Capability, Simulation};

pub(super) const CAPABILITY: Capability = Capability::new("renderers", |world, _| {
    let renderers = Arc::new(Simulated);
    world.backends.renderers = Some(renderers.clone());
    Ok(renderers)
});

impl Simulation for Simulated {}
