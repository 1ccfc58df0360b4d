//! The names of all metrics.

/// Operations that the database stored.
pub(crate) const WRITES: &str = "nat44_writes_total";
