//! One instance of a guest of any world: called by the name of an export, recorded, rebuilt, replayed.
//!
//! ```text
//! World + Guest -> Program -> Instance (its tape has every call) -> Instances (by key, kept in a folder)
//! ```
//!
//! Knows no loop, no source, and no world by name.
#![forbid(unsafe_code)]

pub mod dispatch;
mod instance;
mod instances;
mod program;
pub mod replay;
mod world;

pub use instance::{Instance, REPLAY_GUARD, Start, StartError};
pub use instances::{Instances, LastCall, OpenError, Recorded, with_causes};
pub use program::Program;
pub use world::{Dispatch, Linked, Running, Store, World, Worlds, linked, names};
