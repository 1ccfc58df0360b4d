//! What the loops of all guests share: how they begin, where their input comes from, and when they act, wait and stop.
//!
//! Knows no guest by name.

pub(crate) mod cluster;
pub(crate) mod falling;
pub(crate) mod ground;
pub(crate) mod held;
pub(crate) mod input;
pub(crate) mod interrupt;
pub(crate) mod keyed;
pub(crate) mod leading;
pub(crate) mod plan;
pub(crate) mod slot;
pub(crate) mod supervisor;
pub(crate) mod turns;
