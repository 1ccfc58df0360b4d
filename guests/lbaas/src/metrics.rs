//! How metrics are sent: never a delta of 0. And the names of those that several places send.

use std::collections::BTreeMap;

use crate::bindings::trueup::lbaas::types::Kind;
use crate::order;
use crate::world::World;

/// A counter, and its label for the kind of resource.
pub type Counter = (&'static str, &'static str);

/// Own resources of the load balancers looked at, per list.
pub const RETRIEVED: Counter = ("trueup_lbaas_retrieved_resources_total", "type");
/// Entries of `create` that failed, and created resources that were not ready in time.
pub const CREATE_ERRORS: Counter = ("trueup_lbaas_create_errors_total", "kind");

/// Sets how many resources are still to `create` or to `destroy`; 0 ends that.
pub fn set_pending(world: &mut impl World, operation: &str, count: usize) {
    world.gauge_count("trueup_lbaas_resources_pending", &[("operation", operation)], count);
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
    /// Counts all of these.
    pub fn of(kinds: impl Iterator<Item = Kind>) -> Self {
        let mut tally = Self::default();
        kinds.for_each(|kind| tally.add(kind));
        tally
    }

    /// Counts one.
    pub fn add(&mut self, kind: Kind) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// The total.
    pub fn total(&self) -> u32 {
        u32::try_from(self.0.values().sum::<u64>()).unwrap_or(u32::MAX)
    }

    /// Sends the counts.
    pub fn send(&self, world: &mut impl World, (name, label): Counter) {
        for (&kind, &delta) in &self.0 {
            world.counter_add(name, &[(label, order::word(kind))], delta);
        }
    }
}
