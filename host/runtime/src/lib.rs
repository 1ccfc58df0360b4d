//! From events through the controller and the guest to effects.
//!
//! ```text
//! source -> adapter -> controller -> instance (guest, tape, limits) -> effects
//! ```
//!
//! This crate implements all commands, but not the command line itself, and not the shipped guests. Its folders lie in
//! layers; none imports from one above it:
//!
//! ```text
//! run                          begins what the configuration names, joins the loops, ends them
//! control, admin, page         what operators see and ask
//! worlds                       the list of all kinds of work, and one folder for each
//! kind                         what a kind of work is
//! work                         what the loops share
//! swap                         how another version of a guest becomes active
//! lifecycle, decisions, board  which version decides, what becomes of failures, what is kept about decisions
//! scenario                     what guests must do
//! shadow, gate                 how two versions are compared
//! guests                       what a world is, and how a guest of it is loaded and called
//! ```
#![forbid(unsafe_code)]

pub mod admin;
pub mod board;
pub mod control;
pub mod decisions;
pub mod etcd;
mod event;
mod files;
pub mod gate;
pub mod guests;
pub mod infer;
pub mod instance;
mod instances;
mod kind;
mod kubernetes;
mod lifecycle;
pub mod nftables;
pub mod page;
pub mod plan;
pub mod replay;
pub mod run;
pub mod scenario;
mod setup;
pub mod shadow;
pub mod sim;
mod socket;
pub mod swap;
pub mod telemetry;
mod work;
pub mod worlds;

pub use trueup_capabilities as capabilities;
pub use trueup_config as config;
pub use trueup_engine::{Engine, Guest, Options as EngineOptions};
pub use trueup_registry as registry;
