//! What simulated servers have in common: everything about a request but what the API decides.
//!
//! [`service::Service`] lists what a server decides itself; [`pipeline`] does the rest. Knows no API.
//!
//! ```text
//! server.rs -> pipeline.rs -> faults.rs, traffic.rs -> service.rs (lbaas, compute)
//!              admin.rs -^
//! ```

pub(crate) mod admin;
pub(crate) mod faults;
pub(crate) mod pattern;
pub(crate) mod pipeline;
pub(crate) mod refusal;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod state_file;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod token;
pub(crate) mod traffic;

/// The target of the servers' log lines.
pub(crate) const LOG_TARGET: &str = "trueup::sim";
