//! Which version of a guest decides, and what becomes of its failures.
//!
//! Knows no source, no loop and no world.

pub mod active;
pub mod failure;
pub mod failure_counts;
pub mod quarantine;
