//! `trueup:cri/sandboxes`: the container runtime's running pod sandboxes.
//!
//! ```text
//! guest -> binding (grant, tape) -> Runtime: simulated, or CRI v1 over the runtime's socket
//! ```

pub(crate) mod binding;
mod messages;
pub mod remote;

use std::collections::BTreeSet;

use async_trait::async_trait;

pub use crate::bindings::cri::sandboxes::Sandbox;

/// A container runtime, real or simulated.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// The running sandboxes with an address of their own, by id; one record per address.
    async fn list_running(&self) -> Result<Vec<Sandbox>, String>;

    /// The ids of all sandboxes that the runtime knows, running or not. Only the host can call this, not guests.
    ///
    /// # Errors
    /// If the ids are unknown; the caller must not draw any conclusion from that.
    async fn list_ids(&self) -> Result<BTreeSet<String>, String> {
        Err("this runtime does not list them".to_owned())
    }
}

/// A container runtime in memory, with a fixed set of sandboxes.
#[derive(Debug, Default)]
pub struct Simulated(Vec<Sandbox>);

impl Simulated {
    /// A runtime with these running sandboxes. Answers are ordered by id; those of one id keep the given order.
    pub fn new(mut sandboxes: Vec<Sandbox>) -> Self {
        sandboxes.sort_by(|left, right| left.id.cmp(&right.id));
        Self(sandboxes)
    }
}

#[async_trait]
impl Runtime for Simulated {
    async fn list_running(&self) -> Result<Vec<Sandbox>, String> {
        Ok(self.0.clone())
    }
}
