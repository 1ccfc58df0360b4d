//! HTTP for the backends: one client over connections that write nothing once this host may not act any more.
//!
//! Repeats nothing and knows no API: each backend interprets its answers.
//!
//! ```text
//! client (one request within its time and the lease's) -> connector (proxy, TLS) -> socket (each write)
//! ```

pub mod client;
pub mod connector;
pub mod limit;
pub mod secret;
pub mod socket;
