//! The interface between the runner of scenarios and the runtime of guests: a world, and instances to call.

use std::sync::Arc;

use serde_json::{Map, Value};
use trueup_base::clock::VirtualClock;
use trueup_capabilities::faults::Faults;
use trueup_capabilities::{Backends, async_trait, nftables, renderer};
use trueup_instance::StartError;
use trueup_instance::dispatch::InvokeError;

use crate::file::{Asked, NOW_MS, Scenario};
use crate::simulated::{FaultedClock, FaultedRandom, Simulations};

/// The source of guests.
#[async_trait]
pub trait Stage: Send + Sync {
    /// Makes sure that a guest, `NAME` or `NAME@VERSION`, can be started.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    async fn load(&self, guest: &str) -> Result<(), String>;

    /// Starts a new instance for a scenario in `world`: calls `lifecycle.init`, and `lifecycle.restore` if there is a
    /// snapshot.
    ///
    /// # Errors
    /// Why it did not start.
    async fn start(&self, scenario: &Scenario, world: &World, snapshot: Option<&str>) -> Started;
}

/// A new instance, or why it did not start.
pub type Started = Result<Box<dyn Actor>, StartError>;

/// One instance of a guest.
#[async_trait]
pub trait Actor: Send {
    /// Calls an export, `interface.function` in WIT spelling, with its arguments by name.
    ///
    /// # Errors
    /// How it ended without an answer, or why the call is impossible.
    async fn call(&mut self, export: &str, args: &Value) -> Result<Value, InvokeError>;

    /// Takes the questions since the previous call of this function, in order.
    fn take_asked(&mut self) -> Vec<Asked>;

    /// Takes the first timer that is due at `now_ms`, ordered by time and id: its time and its id.
    fn take_due(&mut self, now_ms: u64) -> Option<(u64, u64)>;
}

/// Everything that one scenario simulates. It outlives the instances.
#[derive(Clone)]
pub struct World {
    /// Moves with `advance_ms` and with sleeps.
    pub(crate) clock: Arc<VirtualClock>,
    /// The faults to inject.
    pub(crate) faults: Arc<Faults>,
    /// The simulated capabilities.
    pub(crate) simulations: Simulations,
    /// The backends of every instance: the simulations.
    pub(crate) backends: Backends,
}

impl World {
    /// The initial world.
    ///
    /// # Errors
    /// If a part does not have the type of its simulation.
    pub(crate) fn new(given: &Map<String, Value>) -> serde_json::Result<Self> {
        let now_ms = given.get(NOW_MS).and_then(Value::as_u64).unwrap_or_default();
        let clock = Arc::new(VirtualClock::new(now_ms));
        let faults = Arc::<Faults>::default();
        let backends = Backends {
            clock: Arc::new(FaultedClock(clock.clone(), faults.clone())),
            random: Arc::new(FaultedRandom(faults.clone())),
            faults: Some(faults.clone()),
            nftables: Some(Arc::new(nftables::Simulated)),
            renderers: Some(Arc::new(renderer::Simulated)),
            ..Backends::default()
        };
        let mut world = Self {
            clock,
            faults,
            simulations: Simulations::default(),
            backends,
        };
        world.simulations = Simulations::start(&mut world, given.clone())?;
        Ok(world)
    }
}
