//! Shared parts of the simulated servers: connections that end on demand, a rate limit, patterns of paths.
//!
//! Knows HTTP only as bytes and texts. Each server decides its answers (`lbaas/server`, `neg/server`).

pub(crate) mod connection;
pub(crate) mod pattern;
pub(crate) mod rate;
