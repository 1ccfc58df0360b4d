//! A container runtime in memory.

use super::{Runtime, Sandbox};
use async_trait::async_trait;

/// Holds a fixed set of sandboxes.
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
