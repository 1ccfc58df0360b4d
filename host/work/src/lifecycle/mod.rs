//! Which version of a guest decides, and what becomes of its failures.
//!
//! Knows no source, no loop and no world.

pub mod active;
pub(crate) mod asked;
mod cycles;
pub mod failure;
pub(crate) mod planning;
pub mod quarantine;
pub mod troubles;
