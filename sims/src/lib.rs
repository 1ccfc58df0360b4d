//! Simulated servers: an Anexia Engine and a Compute Engine, over HTTP on loopback.
//!
//! For tests and demonstrations on one machine. A server speaks its API's JSON in types of its own and shares nothing
//! with the backend that speaks to it, so that a mistake in one does not hide in the other. Knows nothing of guests,
//! capabilities and the host's configuration.
//!
//! ```text
//! lbaas, compute (one API each) -> base (listening, limits, token, faults, counters, log lines, errors)
//! ```
#![forbid(unsafe_code)]

mod base;
pub mod compute;
pub mod lbaas;

pub use base::Token;
pub use base::faults::Fault;
pub use base::server::{Server, StartError};
