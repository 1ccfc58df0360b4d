//! What guests may import: bindings, grants, backends and simulations.
//!
//! For each interface of `wit/` there is a binding, which checks the grant and asks the tape, and the backends that
//! answer. Knows nothing of guests, instances or configuration files.
//!
//! ```text
//! guest -> Host (limits, tape, guard: grant and quota) -> backend: real or simulated
//!                                   \-> audit
//! ```
#![forbid(unsafe_code)]

mod ask;
pub mod audit;
mod backends;
pub mod bindings;
pub mod checkpoint;
pub mod cri;
pub mod etcd;
pub mod faults;
pub mod grants;
pub mod guard;
pub mod holdings;
mod host;
mod identity;
pub mod lbaas;
pub mod log;
mod means;
pub mod meter;
pub mod metrics;
pub mod neg;
pub mod nftables;
mod own_file;
pub mod pace;
pub mod planned;
pub mod questions;
pub mod quota;
pub mod random;
pub mod reading;
mod remote;
pub mod renderer;
pub mod size;
#[cfg(test)]
mod testing;
pub mod timers;
pub mod trace;
#[cfg_attr(not(feature = "wasi"), path = "wasi/absent.rs")]
pub mod wasi;

pub use ask::Stop;
/// For the implementations of the backends' traits.
pub use async_trait::async_trait;
pub use backends::Backends;
pub use host::Host;
pub use identity::Identity;
