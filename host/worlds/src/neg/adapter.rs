//! Translates Kubernetes objects into the input of the guest `neg`: its settings, and the desired endpoints of NEGs.
//!
//! Pure and incremental: the cost of a change depends on the keys it affects, not on the total. This module does not
//! know instances, operations or the current content of NEGs.
//!
//! ```text
//! Service (annotation) --> exposed ports --+
//! EndpointSlices --> endpoints of pods ----+--> one desired state for each (Service, port)
//! Nodes --> instance, zone, subnet --------+
//! ```

mod annotation;
mod desired;
mod endpoints;
mod index;
mod key;
mod names;
mod node;
mod notes;
mod targets;

pub(crate) use desired::{Desired, Locations};
pub(crate) use key::Key;
pub(crate) use targets::Targets;
pub(crate) use trueup_config::NEG_NAMES;

#[cfg(test)]
mod tests;
