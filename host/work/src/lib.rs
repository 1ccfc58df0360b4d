//! The loops that call guests, and what every kind of work shares.
//!
//! ```text
//! source -> adapter -> controller -> instance (guest, tape, limits) -> effects
//! ```
//!
//! This crate lists no worlds: `trueup-worlds` does. Its folders lie in layers; none imports from one above it:
//!
//! ```text
//! kind                         what a kind of work is
//! keyed, slot, ...             what the loops share: how they begin, their input, when they act and stop
//! swap                         how another version of a guest becomes active
//! lifecycle, decisions, status which version decides, what becomes of failures, what is kept about decisions
//! shadow, gate                 how two versions are compared
//! ```
#![forbid(unsafe_code)]

pub mod cluster;
pub mod decisions;
pub mod etcd;
pub mod event;
pub mod files;
pub mod gate;
pub mod host_context;
pub mod input;
pub mod keyed;
pub mod kind;
pub mod kubernetes;
pub mod leading;
pub mod lifecycle;
pub mod load;
pub mod needs;
pub mod nftables;
pub mod object_counts;
pub mod objects;
pub mod plan;
pub mod setup;
pub mod shadow;
pub mod slot;
pub mod socket;
pub mod status;
pub mod supervisor;
pub mod swap;
