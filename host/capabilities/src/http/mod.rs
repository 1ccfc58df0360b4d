//! HTTP for the backends: one client over connections that write nothing once this host may not act any more.
//!
//! Repeats nothing and knows no API: each backend interprets its answers (`lbaas/anexia`, `neg/compute`).
//!
//! ```text
//! client (one request within its time and the lease's) -> connector (proxy, TLS) -> socket (each write)
//! ```

pub(crate) mod client;
pub(crate) mod connector;
pub(crate) mod limit;
pub(crate) mod socket;
