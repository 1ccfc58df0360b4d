//! The names of all metrics, and how they are sent: never a delta of 0.

use std::collections::BTreeMap;

use crate::bindings::trueup::lbaas::types::Kind;
use crate::order;
use crate::world::World;

/// A counter with one label, whose value is a kind of resource.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    name: &'static str,
    label: &'static str,
}

const fn by_kind(name: &'static str) -> Counter {
    Counter { name, label: "kind" }
}

/// Own resources of the load balancers looked at, per list.
pub const RETRIEVED: Counter = Counter {
    name: "trueup_lbaas_retrieved_resources_total",
    label: "type",
};
/// Entries of `create` that succeeded.
pub const CREATED: Counter = by_kind("trueup_lbaas_created_total");
/// Entries of `create` that failed, and created resources that were not ready in time.
pub const CREATE_ERRORS: Counter = by_kind("trueup_lbaas_create_errors_total");
/// Resources destroyed, each once per call.
pub const DELETED: Counter = by_kind("trueup_lbaas_deleted_total");
/// Entries of `destroy` that answered an error other than `not-found`.
pub const DELETE_RETRIES: Counter = by_kind("trueup_lbaas_delete_retries_total");
/// Resources reported as not destroyable.
pub const DELETE_ERRORS: Counter = by_kind("trueup_lbaas_delete_errors_total");
/// Entries of `reset` that succeeded or were not found.
pub const RESET: Counter = by_kind("trueup_lbaas_reset_total");

/// One round.
pub const ROUND_SECONDS: &str = "trueup_lbaas_total_duration_seconds";
/// One wait that includes created resources.
pub const CREATE_SECONDS: &str = "trueup_lbaas_create_resources_duration_seconds";

/// The subject of the pending gauge.
#[derive(Clone, Copy, Debug)]
pub enum Phase {
    /// resources still to create
    Create,
    /// resources still to destroy
    Destroy,
}

/// Sets how many resources the running phase has yet to do; 0 ends it.
pub fn set_pending(world: &mut impl World, phase: Phase, count: usize) {
    let operation = match phase {
        Phase::Create => "create",
        Phase::Destroy => "destroy",
    };
    // A 32-bit memory can't hold more than u32::MAX resources.
    let value = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    world.gauge_set("trueup_lbaas_resources_pending", &[("operation", operation)], value);
}

/// Observes the time since `start_ms`, in seconds. A clock that went back gives 0.
pub fn observe_since(world: &mut impl World, name: &str, start_ms: u64) {
    let elapsed_ms = world.now_ms().saturating_sub(start_ms);
    world.histogram_observe(name, &[], std::time::Duration::from_millis(elapsed_ms).as_secs_f64());
}

/// Counts by kind, to be sent at once.
#[derive(Debug, Default)]
pub struct Tally(BTreeMap<Kind, u64>);

impl Tally {
    /// Counts one.
    pub fn add(&mut self, kind: Kind) {
        self.add_many(kind, 1);
    }

    /// Counts several.
    pub fn add_many(&mut self, kind: Kind, count: usize) {
        let sum = self.0.entry(kind).or_default();
        *sum = sum.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// The total.
    pub fn total(&self) -> u32 {
        self.0.values().fold(0, |sum, &count| {
            sum.saturating_add(u32::try_from(count).unwrap_or(u32::MAX))
        })
    }

    /// Sends the counts above 0.
    pub fn send(&self, world: &mut impl World, counter: Counter) {
        for (&kind, &delta) in self.0.iter().filter(|&(_, &delta)| delta > 0) {
            world.counter_add(counter.name, &[(counter.label, order::word(kind))], delta);
        }
    }
}
