//! The desired state as sources deliver it: Kubernetes objects, and the changes between two readings.
//!
//! Reads objects and their changes, and passes them on; what they mean is not decided here. Objects are shared, so that
//! passing on a snapshot or a change is cheap. The list of this node's network interfaces, in [`enis`], is separate:
//! those are not Kubernetes objects. Knows nothing of guests, WebAssembly or configuration files.
//!
//! ```text
//! manifests ---+-> batches of changes -> Objects -> adapter -> desired
//! API server --+
//! ```
#![forbid(unsafe_code)]

pub mod enis;
pub mod kubernetes;
pub mod manifests;
mod object;
mod rescans;
mod source;
pub mod yaml;

pub use object::{Batch, Change, Kind, Location, Object, ObjectRef, Objects, Problem, Showing};
pub use source::{Batches, Completeness, Missing, Source};
