//! Translates Kubernetes objects into the input of the guest `neg`: its settings, and the desired endpoints of NEGs.
//!
//! Pure and incremental: the cost of a change depends on the keys it affects, not on the total. This module does not
//! know instances, operations or the current content of NEGs.
//!
//! ```text
//! Service (annotation) --> exposed ports --+
//! EndpointSlices --> endpoints of pods ----+--> one wish for each (Service, port)
//! Nodes --> instance, zone, subnet --------+
//! ```

mod annotation;
mod claims;
mod desired;
mod endpoints;
mod index;
mod key;
mod names;
mod node;
mod notes;
mod targets;

pub use annotation::ANNOTATION;
pub use desired::{Changed, Concern, Places, Wish};
pub use key::Key;
pub use names::{made_name, name_in_subnet};
pub use node::ZONE_LABEL;
pub use targets::Targets;
pub use trueup_config::{NEG_NAMES, NegAdapter as Settings, ZONES, is_resource_name};

#[cfg(test)]
mod tests;
