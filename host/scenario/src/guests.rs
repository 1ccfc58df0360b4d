//! The stage with real guests: WebAssembly instances with all grants and an in-memory tape.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::to_raw_value;
use trueup_base::clock::{Clock as _, VirtualClock};
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::{Log, NoLog};
use trueup_capabilities::{Backends, Host, async_trait};
use trueup_engine::{CallError, Engine};
use trueup_instance::dispatch::{self, InvokeError};
use trueup_instance::{Instance, Program, Start, StartError};
use trueup_journal::{Event, Tape};

use crate::file::{Asked, Scenario, limits};
use crate::stage::{Actor, Stage, Started, World};

/// Loads a guest by its name in a scenario, or says in one line why it can't run here.
pub type Load = Box<dyn Fn(&str) -> Result<Arc<Program>, String> + Send + Sync>;

/// Guests by their names in scenarios.
pub struct Guests {
    engine: Engine,
    load: Load,
    /// By [`full_name`].
    loaded: Mutex<BTreeMap<String, Arc<Program>>>,
    log: Arc<dyn Log>,
}

impl Guests {
    /// The guests that `load` finds, each loaded once.
    pub fn new(engine: Engine, load: Load) -> Self {
        Self {
            engine,
            load,
            loaded: Mutex::default(),
            log: Arc::new(NoLog),
        }
    }

    /// Passes the guests' log to `log`. Without it, log lines are dropped.
    #[must_use]
    pub fn logging(self, log: Arc<dyn Log>) -> Self {
        Self { log, ..self }
    }

    /// Uses this program for `guest`.
    #[must_use]
    pub fn with(self, guest: &str, program: Arc<Program>) -> Self {
        self.loaded.lock().insert(full_name(guest), program);
        self
    }

    fn program(&self, guest: &str) -> Result<Arc<Program>, String> {
        let name = full_name(guest);
        let mut loaded = self.loaded.lock();
        if let Some(program) = loaded.get(&name) {
            return Ok(Arc::clone(program));
        }
        let program = (self.load)(guest)?;
        loaded.insert(name, Arc::clone(&program));
        Ok(program)
    }
}

/// `NAME@VERSION`. A bare name always means version 1.
pub fn full_name(guest: &str) -> String {
    if guest.contains('@') {
        guest.to_owned()
    } else {
        format!("{guest}@1")
    }
}

#[async_trait]
impl Stage for Guests {
    async fn load(&self, guest: &str) -> Result<(), String> {
        self.program(guest).map(drop)
    }

    async fn start(&self, scenario: &Scenario, world: &World, snapshot: Option<&str>) -> Started {
        let broken = |why| StartError::from(CallError::Trap(why));
        let program = self.program(&scenario.guest).map_err(broken)?;
        // A world has one instance at a time: the next one takes over its gauges.
        let identity = program.identity("scenario");
        let backends = Backends {
            log: Arc::clone(&self.log),
            quotas: Arc::default(),
            ..world.backends.clone()
        };
        // They were read together with the scenario.
        let limits = limits(&scenario.limits).map_err(|error| broken(error.to_string()))?;
        let settings = Value::Object(scenario.config.clone());
        let host = Host::new(identity, Tape::memory(), Grants::everything(), backends, limits);
        let start = Start {
            settings: &settings,
            snapshot,
            cpu_max: Duration::from_millis(limits.cpu_ms),
        };
        let started = Instance::start(&self.engine, &program, host, start).await;
        let instance = started.map_err(|(_, error)| error)?;
        let clock = Arc::clone(&world.clock);
        Ok(Box::new(Guest { instance, clock }) as Box<dyn Actor>)
    }
}

/// One instance of a guest.
struct Guest {
    instance: Instance,
    /// The world's clock itself: when a call begins is no question of the guest, so no fault answers it.
    clock: Arc<VirtualClock>,
}

#[async_trait]
impl Actor for Guest {
    async fn call(&mut self, export: &str, args: &Value) -> Result<Value, InvokeError> {
        let misuse = |error| InvokeError::Misuse(format!("the arguments are no JSON: {error}"));
        let args = to_raw_value(args).map_err(misuse)?;
        let answer = self.instance.call_at(self.clock.now_ms(), export, &args).await?;
        dispatch::read(export, &answer)
    }

    fn take_asked(&mut self) -> Vec<Asked> {
        let entries = self.instance.host_mut().tape.take_entries().into_iter();
        let asked = entries.filter_map(|entry| match entry.event {
            // The tape itself wrote these arguments as JSON.
            Event::Ask(ask) => Some(Asked {
                call: ask.name,
                args: serde_json::from_str(ask.args.get()).ok()?,
            }),
            _ => None,
        });
        asked.collect()
    }

    fn take_due(&mut self, now_ms: u64) -> Option<(u64, u64)> {
        self.instance.host_mut().timers.take_due(now_ms)
    }
}
