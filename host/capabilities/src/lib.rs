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

pub mod audit;
pub mod bindings;
pub mod checkpoint;
pub mod cri;
pub mod etcd;
pub mod faults;
pub mod grants;
pub mod guard;
pub mod holdings;
pub mod host;
pub mod lbaas;
pub mod log;
pub mod meter;
pub mod metrics;
pub mod neg;
pub mod nftables;
pub mod pace;
pub mod questions;
pub mod quota;
pub mod random;
pub mod renderer;
pub mod size;
pub mod timers;
pub mod trace;
#[cfg_attr(not(feature = "wasi"), path = "wasi/absent.rs")]
pub mod wasi;

use std::pin::Pin;

pub use host::{Backends, Host, Identity, Stop};

/// The return type of a backend's methods: boxed, so that backends can be `Arc<dyn ...>`.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
