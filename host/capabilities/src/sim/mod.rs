//! What simulated servers have in common: connections that end on demand, a rate limit, patterns of paths.
//!
//! Knows HTTP only as bytes and texts. What a server answers is each server's business (`lbaas/server`, `neg/server`).

pub(crate) mod connection;
pub(crate) mod pattern;
pub(crate) mod rate;
