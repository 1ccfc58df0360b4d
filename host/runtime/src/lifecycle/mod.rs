//! Which version of a guest decides, and what becomes of its failures.
//!
//! Knows no source, no loop and no world.

pub(crate) mod active;
mod cycles;
pub(crate) mod failure;
pub(crate) mod planning;
pub(crate) mod quarantine;
pub(crate) mod troubles;
