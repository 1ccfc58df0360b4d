//! The names of all metrics, and how they are sent: never a delta of 0.

use std::time::Duration;

use crate::world::World;

/// Syncs by `result`.
pub const SYNCS: &str = "trueup_neg_syncs_total";
/// Operations that ended or did not start, by `operation` and `result`.
pub const OPERATIONS: &str = "trueup_neg_operations_total";
/// Endpoints in operations started, by `operation`.
pub const OPERATION_ENDPOINTS: &str = "trueup_neg_operation_endpoints_total";
/// Endpoints in operations in flight.
pub const IN_FLIGHT_ENDPOINTS: &str = "trueup_neg_in_flight_endpoints";
/// Retry timers scheduled, by `cause`.
pub const RETRIES: &str = "trueup_neg_retries_total";
/// 0 or 1.
pub const ERROR_STATE: &str = "trueup_neg_error_state";
/// 0 or 1.
pub const MIGRATION_PAUSED: &str = "trueup_neg_migration_paused";
/// Migration endpoints that the latest filter took out of `remove`.
pub const MIGRATION_ENDPOINTS: &str = "trueup_neg_migration_endpoints";
/// The latest filter's `committed`, by `type`.
pub const COMMITTED_ENDPOINTS: &str = "trueup_neg_committed_endpoints";
/// Endpoints put back into `remove`.
pub const MIGRATION_DETACHMENTS: &str = "trueup_neg_migration_detachments_total";
/// How long the migration has taken so far.
pub const MIGRATION_UNFINISHED_SECONDS: &str = "trueup_neg_migration_unfinished_seconds";
/// How long a migration took.
pub const MIGRATION_DURATION_SECONDS: &str = "trueup_neg_migration_duration_seconds";

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
