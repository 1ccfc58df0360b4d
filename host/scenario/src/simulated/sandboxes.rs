//! The container runtime: a list of sandboxes.

use std::sync::Arc;

use trueup_capabilities::{cri::Sandbox, cri::Simulated};

use super::{Capability, Simulation, fits};

pub(super) const CAPABILITY: Capability = Capability {
    given: Some(fits::<Vec<Sandbox>>),
    ..Capability::new("sandboxes", |world, given| {
        let sandboxes: Option<Vec<Sandbox>> = serde_json::from_value(given)?;
        let runtime = Arc::new(Simulated::new(sandboxes.unwrap_or_default()));
        world.backends.sandboxes = Some(runtime.clone());
        Ok(runtime)
    })
};

impl Simulation for Simulated {}
