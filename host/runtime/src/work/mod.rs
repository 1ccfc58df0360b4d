//! What the loops of all guests share: how they begin, where their input comes from, and when they act, wait and stop.
//!
//! Knows no guest by name, but for what is published about Services ([`publish`]).

pub(crate) mod cluster;
pub(crate) mod falling;
pub(crate) mod ground;
pub(crate) mod held;
pub(crate) mod input;
pub(crate) mod interrupt;
pub(crate) mod leading;
pub(crate) mod publish;
pub(crate) mod turns;
