//! The packet filter: accepts every ruleset.

use std::sync::Arc;

use trueup_capabilities::nftables::simulated::Simulated;

use super::{Capability, Simulation};

pub(super) const CAPABILITY: Capability = Capability::new("nftables", |world, _| {
    let kernel = Arc::new(Simulated);
    world.backends.nftables = Some(kernel.clone());
    Ok(kernel)
});

impl Simulation for Simulated {}
