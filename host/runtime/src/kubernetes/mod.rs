//! What the host writes to a cluster: its part of a Service, and events.
//!
//! Reading a cluster is `trueup_sources`; which Service is written, and when, is up to the callers.

pub(crate) mod events;
pub(crate) mod write;
