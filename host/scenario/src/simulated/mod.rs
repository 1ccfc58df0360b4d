//! The capabilities that scenarios simulate. [`CAPABILITIES`] lists them; each says how its parts of a scenario are
//! read and compared. The rest of the runner knows no capability by name. Also the guests' clock and random numbers,
//! which a fault can answer for.

mod lbaas;
mod neg;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Map, Value, json};
use trueup_base::clock::{Clock, Sleep, VirtualClock};
use trueup_capabilities::checkpoint::{Saved, Simulated as Checkpoint};
use trueup_capabilities::cri::{Sandbox, Simulated as Runtime};
use trueup_capabilities::etcd::embedded::Embedded;
use trueup_capabilities::faults::Faults;
use trueup_capabilities::metrics::Registry;
use trueup_capabilities::questions;
use trueup_capabilities::random::Random;
use trueup_sources::yaml::{self, FieldError, Node};

use super::report::Problem;
use super::stage::World;
use crate::compare;

/// Every simulated capability, in the order in which messages name them.
const CAPABILITIES: &[Capability] = &[CHECKPOINT, SANDBOXES, ETCD, lbaas::CAPABILITY, neg::CAPABILITY, METRICS];

/// The stored checkpoint, which outlives instances: null, or `data` and `entries`.
const CHECKPOINT: Capability = Capability {
    given: Some(fits::<Option<Saved>>),
    expected: Some(fits::<Option<Saved>>),
    ..Capability::new("checkpoint", |world, given| {
        let saved: Option<Saved> = serde_json::from_value(given)?;
        let store = Arc::new(Checkpoint::new(saved));
        world.backends.checkpoint = Some(store.clone());
        Ok(store)
    })
};

impl Simulation for Checkpoint {
    fn compare(&self, expected: Value) -> Option<Problem> {
        compare_checkpoints(expected, json!(self.saved()))
    }
}

/// Compares `data` as JSON if both sides are JSON text.
fn compare_checkpoints(mut expected: Value, mut was: Value) -> Option<Problem> {
    let json = |checkpoint: &Value| -> Option<Value> {
        let data = checkpoint.get("data")?.as_str()?;
        serde_json::from_str(data).ok()
    };
    if let (Some(wanted), Some(is)) = (json(&expected), json(&was)) {
        for (checkpoint, data) in [(&mut expected, wanted), (&mut was, is)] {
            if let Some(place) = checkpoint.get_mut("data") {
                *place = data;
            }
        }
    }
    compare::values("checkpoint", &expected, &was)
}

/// The container runtime: a list of sandboxes.
const SANDBOXES: Capability = Capability {
    given: Some(fits::<Vec<Sandbox>>),
    ..Capability::new("sandboxes", |world, given| {
        let sandboxes: Option<Vec<Sandbox>> = serde_json::from_value(given)?;
        let runtime = Arc::new(Runtime::new(sandboxes.unwrap_or_default()));
        world.backends.sandboxes = Some(runtime.clone());
        Ok(runtime)
    })
};

impl Simulation for Runtime {}

/// The key-value database: an object of texts by key.
const ETCD: Capability = Capability {
    given: Some(fits::<BTreeMap<String, String>>),
    expected: Some(fits::<BTreeMap<String, String>>),
    ..Capability::new("etcd", |world, given| {
        let entries: Option<BTreeMap<String, String>> = serde_json::from_value(given)?;
        let etcd = Embedded::in_memory_with(&entries.unwrap_or_default());
        let etcd = Arc::new(etcd.map_err(serde_json::Error::custom)?);
        world.backends.etcd = Some(etcd.clone());
        Ok(etcd)
    })
};

impl Simulation for Embedded {
    fn compare(&self, expected: Value) -> Option<Problem> {
        compare::state("etcd", &expected, &json!(self.entries().unwrap_or_default()))
    }
}

/// The metrics of every instance: `expect_state` compares the series that it names.
const METRICS: Capability = Capability {
    expected: Some(fits::<BTreeMap<String, f64>>),
    ..Capability::new("metrics", |world, _| Ok(world.backends.metrics.clone()))
};

impl Simulation for Registry {
    fn compare(&self, expected: Value) -> Option<Problem> {
        let names = expected.as_object().into_iter().flat_map(|series| series.keys());
        let now: BTreeMap<&String, f64> = names.filter_map(|name| Some((name, self.number(name)?))).collect();
        compare::state("metrics", &expected, &json!(now))
    }
}

/// One simulated capability.
struct Capability {
    /// Its key in `given` and `expect_state`.
    key: &'static str,
    /// Checks its part of `given`. `None`: it has none.
    given: Option<Check>,
    /// Checks its part of `expect_state`. `None`: it has none.
    expected: Option<Check>,
    /// The export that a guest must answer when a step ends an operation of this capability.
    on_operation: Option<&'static str>,
    /// Starts it with its part of `given`, which is null if the scenario says nothing. It adds its own backend.
    start: Start,
}

type Start = fn(&mut World, Value) -> serde_json::Result<Arc<dyn Simulation>>;

impl Capability {
    /// One that has no part of `given` or `expect_state`, and no operations.
    const fn new(key: &'static str, start: Start) -> Self {
        Self {
            key,
            given: None,
            expected: None,
            on_operation: None,
            start,
        }
    }
}

/// Whether a value has the type of its part.
pub(crate) type Check = fn(&Node) -> Result<(), FieldError>;

/// The check for a part of this type.
pub(crate) fn fits<T: DeserializeOwned>(node: &Node) -> Result<(), FieldError> {
    yaml::read::<T>(node).map(drop)
}

/// A running simulation.
trait Simulation: Send + Sync {
    /// Compares the state with the expected one.
    fn compare(&self, _expected: Value) -> Option<Problem> {
        None
    }

    /// Ends an operation. One that never started, or has ended, is ignored.
    fn end_operation(&self, _operation: u64, _succeeded: bool) {}
}

/// The checks of `given`, by key.
pub(crate) fn given() -> impl Iterator<Item = (&'static str, Check)> {
    CAPABILITIES.iter().filter_map(|of| Some((of.key, of.given?)))
}

/// The checks of `expect_state`, by key.
pub(crate) fn expected() -> impl Iterator<Item = (&'static str, Check)> {
    CAPABILITIES.iter().filter_map(|of| Some((of.key, of.expected?)))
}

/// The imports that can return a fault, ascending. A fault on any other import would have no effect.
pub(crate) fn imports() -> Vec<&'static str> {
    let asked = questions::CAPABILITIES.iter().flat_map(|of| of.functions);
    let mut imports: Vec<_> = asked.map(|function| function.name).chain(CLOCK_AND_RANDOM).collect();
    imports.sort_unstable();
    imports
}

/// The simulations of one scenario.
#[derive(Clone, Default)]
pub(crate) struct Simulations(Arc<Vec<(&'static Capability, Arc<dyn Simulation>)>>);

impl Simulations {
    /// # Errors
    /// If a part of `given` does not have the type of its simulation.
    pub(crate) fn start(world: &mut World, mut given: Map<String, Value>) -> serde_json::Result<Self> {
        let started = CAPABILITIES.iter().map(|of| {
            let given = given.remove(of.key).unwrap_or_default();
            Ok((of, (of.start)(world, given)?))
        });
        Ok(Self(Arc::new(started.collect::<serde_json::Result<_>>()?)))
    }

    /// Compares the parts of the state, each with its key.
    pub(crate) fn compare(&self, mut expected: Map<String, Value>) -> Vec<Problem> {
        let problems = self.0.iter().filter_map(|(of, simulation)| {
            let expected = expected.remove(of.key)?;
            simulation.compare(expected)
        });
        problems.collect()
    }

    /// Ends an operation. Returns the export that the guest must answer then.
    pub(crate) fn end_operation(&self, operation: u64, succeeded: bool) -> Option<&'static str> {
        let mut exports = self.0.iter().filter_map(|(of, simulation)| {
            let export = of.on_operation?;
            simulation.end_operation(operation, succeeded);
            Some(export)
        });
        exports.next()
    }
}

/// The imports of the clock and of random numbers that can return a fault.
const CLOCK_AND_RANDOM: [&str; 3] = ["clock.now-ms", "clock.sleep-ms", "random.next-u64"];

/// The guests' clock: faults take precedence.
#[derive(Debug)]
pub(crate) struct FaultedClock(pub(crate) Arc<VirtualClock>, pub(crate) Arc<Faults>);

impl Clock for FaultedClock {
    fn now_ms(&self) -> u64 {
        let fault = self.1.whole("clock.now-ms", &json!({}));
        fault.unwrap_or_else(|| self.0.now_ms())
    }

    fn steady_ms(&self) -> u64 {
        self.0.steady_ms()
    }

    fn sleep_ms(&self, duration_ms: u64) -> Sleep<'_> {
        let fault = self.1.whole("clock.sleep-ms", &json!({ "duration_ms": duration_ms }));
        match fault {
            Some(()) => Box::pin(std::future::ready(())),
            None => self.0.sleep_ms(duration_ms),
        }
    }
}

/// The guests' random numbers: 0, unless a fault returns another value.
#[derive(Debug)]
pub(crate) struct FaultedRandom(pub(crate) Arc<Faults>);

impl Random for FaultedRandom {
    fn next_u64(&self) -> u64 {
        self.0.whole("random.next-u64", &json!({})).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_data_is_compared_as_json_where_both_sides_are() {
        let stored = |data: &str| json!({"data": data, "entries": ["{}"]});
        assert_eq!(
            compare_checkpoints(stored(r#"{"a":1,"b":[]}"#), stored(r#"{"b": [], "a": 1}"#)),
            None
        );
        assert_eq!(compare_checkpoints(stored("no JSON"), stored("no JSON")), None);
        assert_eq!(compare_checkpoints(Value::Null, Value::Null), None);
        let problem = compare_checkpoints(stored(r#"{"a":1}"#), stored(r#"{"a":2}"#)).unwrap();
        assert_eq!(problem.differences[0].path, "data.a");
        assert!(
            compare_checkpoints(stored("x"), stored(r#""x""#)).is_some(),
            "text is not a JSON string"
        );
        assert!(compare_checkpoints(Value::Null, stored("x")).is_some());
    }
}
