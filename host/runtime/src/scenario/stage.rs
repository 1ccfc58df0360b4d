//! The interface between the runner of scenarios and the runtime of guests: a world, and instances to call.

use std::sync::Arc;

use serde_json::{Value, json};
use trueup_base::clock::{Clock, Sleep, VirtualClock};
use trueup_capabilities::Answer;
use trueup_capabilities::checkpoint;
use trueup_capabilities::cri;
use trueup_capabilities::etcd;
use trueup_capabilities::faults::Faults;
use trueup_capabilities::lbaas::simulated::Simulated;
use trueup_capabilities::metrics::Registry;
use trueup_capabilities::neg;
use trueup_capabilities::nftables;
use trueup_capabilities::random::Random;
use trueup_capabilities::renderer;

use super::model::Given;

/// The source of guests.
pub trait Stage: Send + Sync {
    /// Makes sure that a guest, `NAME` or `NAME@VERSION`, can be started.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    fn load<'a>(&'a self, guest: &'a str) -> Answer<'a, Result<(), String>>;

    /// Starts a new instance in `world`: calls `lifecycle.init`, and `lifecycle.restore` if there is a snapshot.
    ///
    /// # Errors
    /// Why it did not start.
    fn start<'a>(
        &'a self,
        guest: &'a str,
        world: &'a World,
        settings: &'a Value,
        snapshot: Option<&'a str>,
    ) -> Answer<'a, Result<Box<dyn Actor>, NotStarted>>;
}

/// Why an instance did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// `lifecycle.init` returned an error.
    #[error("init refused the config: {0}")]
    Init(String),
    /// `lifecycle.restore` returned an error.
    #[error("restore refused the old instance's snapshot: {0}")]
    Restore(String),
    /// It trapped, or could not be created.
    #[error("{0}")]
    Broken(String),
}

/// One instance of a guest.
pub trait Actor: Send {
    /// Calls an export, `interface.function` in WIT spelling, with its arguments by name.
    ///
    /// # Errors
    /// The text of the trap, or why the call is impossible.
    fn call<'a>(&'a mut self, export: &'a str, args: &'a Value) -> Answer<'a, Result<Value, String>>;

    /// Takes the questions since the previous call of this function, in order.
    fn take_asked(&mut self) -> Vec<Asked>;

    /// Takes the first timer that is due at `now_ms`, ordered by time and id: its time and its id.
    fn take_due(&mut self, now_ms: u64) -> Option<(u64, u64)>;
}

/// A question that an instance asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// `interface.function` in WIT spelling.
    pub call: String,
    /// By parameter name.
    pub args: Value,
}

/// Everything that one scenario simulates. It outlives the instances.
#[derive(Debug, Clone)]
pub struct World {
    /// Moves with `advance_ms` and with sleeps.
    pub clock: Arc<VirtualClock>,
    /// The faults to inject.
    pub faults: Arc<Faults>,
    /// The LBaaS API.
    pub lbaas: Arc<Simulated>,
    /// The NEG API.
    pub neg: Arc<neg::simulated::Simulated>,
    /// The key-value database.
    pub etcd: Arc<etcd::simulated::Simulated>,
    /// The packet filter.
    pub nftables: Arc<nftables::simulated::Simulated>,
    /// The renderers of a service processor.
    pub renderers: Arc<renderer::simulated::Simulated>,
    /// The stored checkpoint, which outlives instances.
    pub checkpoint: Arc<checkpoint::simulated::Simulated>,
    /// The container runtime.
    pub sandboxes: Arc<cri::simulated::Simulated>,
    /// The metrics of every instance.
    pub metrics: Arc<Registry>,
}

impl World {
    /// The imports that can return a fault. A fault on any other import would have no effect.
    pub const FAULTED: [&'static str; 32] = [
        "api.attach",
        "api.create",
        "api.destroy",
        "api.detach",
        "api.ensure",
        "api.get",
        "api.list-endpoints",
        "api.list-tagged",
        "api.load-balancer",
        "api.reset",
        "clock.now-ms",
        "clock.sleep-ms",
        "kv.commit",
        "kv.delete",
        "kv.get",
        "kv.list-keys",
        "kv.list-prefix",
        "kv.put",
        "kv.put-if-not-exists",
        "nftables.apply",
        "random.next-u64",
        "renderer.add-service",
        "renderer.delete-service",
        "renderer.resync",
        "renderer.update-local-backend-ifs",
        "renderer.update-local-frontend-ifs",
        "renderer.update-node-port-services",
        "renderer.update-service",
        "sandboxes.list-running",
        "store.append",
        "store.checkpoint",
        "store.restore",
    ];

    /// The initial world.
    pub(super) fn new(given: Given) -> Self {
        let clock = Arc::new(VirtualClock::new(given.now_ms));
        let faults = Arc::new(Faults::default());
        let checkpoint = checkpoint::simulated::Simulated::new(faults.clone(), given.checkpoint);
        let sandboxes = cri::simulated::Simulated::new(faults.clone(), given.sandboxes);
        let neg = neg::simulated::Simulated::new(faults.clone());
        given.negs.into_iter().for_each(|of| neg.put(of));
        let etcd = etcd::simulated::Simulated::new(faults.clone(), given.etcd);
        let given = given.lbaas.unwrap_or_default();
        let lbaas = Simulated::new(clock.clone(), faults.clone(), given.settle_ms);
        for (identifier, state) in given.load_balancers {
            lbaas.put_load_balancer(identifier, state);
        }
        for resource in given.objects {
            lbaas.put(resource);
        }
        Self {
            nftables: Arc::new(nftables::simulated::Simulated::new(faults.clone())),
            renderers: Arc::new(renderer::simulated::Simulated::new(faults.clone())),
            etcd: Arc::new(etcd),
            clock,
            faults,
            lbaas: Arc::new(lbaas),
            neg: Arc::new(neg),
            checkpoint: Arc::new(checkpoint),
            sandboxes: Arc::new(sandboxes),
            metrics: Arc::default(),
        }
    }
}

/// The guests' clock: faults take precedence.
#[derive(Debug)]
pub struct FaultedClock(pub World);

impl Clock for FaultedClock {
    fn now_ms(&self) -> u64 {
        self.0
            .faults
            .whole("clock.now-ms", &json!({}))
            .unwrap_or_else(|| self.0.clock.now_ms())
    }

    fn steady_ms(&self) -> u64 {
        self.0.clock.steady_ms()
    }

    fn sleep_ms(&self, duration_ms: u64) -> Sleep<'_> {
        match self
            .0
            .faults
            .whole("clock.sleep-ms", &json!({ "duration_ms": duration_ms }))
        {
            Some(()) => Box::pin(std::future::ready(())),
            None => self.0.clock.sleep_ms(duration_ms),
        }
    }
}

/// The guests' random numbers: 0, unless a fault returns another value.
#[derive(Debug)]
pub struct FaultedRandom(pub World);

impl Random for FaultedRandom {
    fn next_u64(&self) -> u64 {
        self.0.faults.whole("random.next-u64", &json!({})).unwrap_or(0)
    }
}
