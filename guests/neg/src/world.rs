//! Everything that a call may ask, as one argument: the NEG API, the clock, timers, the log and metrics. And how
//! metrics are sent: never a delta of 0. The names of those that several places send are here, too.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use trueup_guest::{Clock, Telemetry};

use crate::bindings::trueup::host::timers;
use crate::bindings::trueup::neg::api::{self, Error, NegRef};
use crate::bindings::trueup::neg::types::Endpoint;

trueup_guest::world! {
    /// The guest's imports.
    pub trait World: Clock + Telemetry {
        fn ensure(neg: &NegRef, subnet: &str) -> Result<bool, Error> = api::ensure;
        fn list_endpoints(neg: &NegRef) -> Result<Vec<Endpoint>, Error> = api::list_endpoints;
        fn attach(neg: &NegRef, endpoints: &[Endpoint]) -> Result<u64, Error> = api::attach;
        fn detach(neg: &NegRef, endpoints: &[Endpoint]) -> Result<u64, Error> = api::detach;
        fn schedule(delay_ms: u64) -> u64 = timers::schedule;
        fn cancel(timer: u64) -> bool = timers::cancel;
    }
}

/// A timer that was scheduled and has neither fired nor been cancelled. As JSON it is the time at which it is due, and
/// has no number until it is scheduled anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pending {
    /// The host's number for it.
    #[serde(skip)]
    pub timer: u64,
    /// When it is due, in milliseconds since the Unix epoch.
    pub due_ms: u64,
}

impl Pending {
    /// Schedules a timer that is due `delay_ms` after now.
    pub fn after(world: &mut impl World, now_ms: u64, delay_ms: u64) -> Self {
        Self {
            timer: world.schedule(delay_ms),
            due_ms: now_ms.saturating_add(delay_ms),
        }
    }

    /// Schedules the timer of an earlier instance again, at once if its time has passed.
    pub fn begin_anew(&mut self, world: &mut impl World) {
        let left_ms = self.due_ms.saturating_sub(world.now_ms());
        self.timer = world.schedule(left_ms);
    }
}

/// The error in a few words, for logs and as the failure of an operation that did not start.
pub fn words(error: &Error) -> String {
    match error {
        Error::NotFound => "not-found".to_owned(),
        Error::RateLimited(None) => "rate-limited".to_owned(),
        Error::RateLimited(Some(ms)) => format!("rate-limited for {ms} ms"),
        Error::Unauthorized => "unauthorized".to_owned(),
        Error::Refused((status, message)) => format!("refused with {status}: {message}"),
        Error::Unavailable(text) => format!("unavailable: {text}"),
        Error::AccessDenied(text) => format!("access-denied: {text}"),
    }
}

/// Syncs by `result`.
pub const SYNCS: &str = "trueup_neg_syncs_total";
/// Operations that ended or did not start, by `operation` and `result`.
pub const OPERATIONS: &str = "trueup_neg_operations_total";
/// 0 or 1.
pub const MIGRATION_PAUSED: &str = "trueup_neg_migration_paused";

/// Adds to a counter.
pub fn count(world: &mut impl World, name: &str, labels: &[(&str, &str)], delta: usize) {
    if delta > 0 {
        world.counter_add(name, labels, u64::try_from(delta).unwrap_or(u64::MAX));
    }
}

/// Sets a gauge to 0 or 1.
pub fn show_whether(world: &mut impl World, name: &str, is_so: bool) {
    world.gauge_set(name, &[], f64::from(u8::from(is_so)));
}

/// The time between the two. A clock that went back gives 0.
pub fn seconds(from_ms: u64, to_ms: u64) -> f64 {
    Duration::from_millis(to_ms.saturating_sub(from_ms)).as_secs_f64()
}
