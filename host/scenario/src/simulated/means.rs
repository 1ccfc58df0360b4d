//! The guest's means: the clock, random numbers, metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use trueup_base::clock::{Clock, Sleep, VirtualClock};
use trueup_capabilities::faults::Faults;
use trueup_capabilities::metrics::Registry;
use trueup_capabilities::random::Random;

use super::{Capability, Problem, Simulation, fits};
use crate::compare;

/// The imports of them that can return a fault.
pub(crate) const IMPORTS: [&str; 3] = ["clock.now-ms", "clock.sleep-ms", "random.next-u64"];

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

/// The metrics of every instance: `expect_state` compares the series that it names.
pub(super) const METRICS: Capability = Capability {
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
