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
//! keyed, slot, ground, ...     what the loops share: how they begin, their input, when they act and stop
//! swap                         how another version of a guest becomes active
//! lifecycle, decisions, board  which version decides, what becomes of failures, what is kept about decisions
//! scenario                     what guests must do
//! shadow, gate                 how two versions are compared
//! guests                       what a world is, and how a guest of it is loaded and called
//! ```
#![forbid(unsafe_code)]

pub mod board;
pub mod cluster;
pub mod decisions;
pub mod etcd;
pub mod event;
mod falling;
pub mod files;
pub mod gate;
pub mod ground;
pub mod guests;
pub mod held;
pub mod input;
pub mod instance;
pub mod instances;
mod interrupt;
pub mod keyed;
pub mod kind;
pub mod kubernetes;
pub mod leading;
pub mod lifecycle;
pub mod needs;
pub mod nftables;
pub mod objects;
pub mod plan;
pub mod replay;
pub mod scenario;
pub mod setup;
pub mod shadow;
pub mod slot;
pub mod socket;
pub mod supervisor;
pub mod swap;
pub mod telemetry;
mod turns;
