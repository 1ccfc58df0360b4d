//! The names of all metrics.

/// Operations that the database stored.
pub const WRITES: &str = "nat44_writes_total";
