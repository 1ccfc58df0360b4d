//! A container runtime in memory that a scenario's faults can override.

use std::sync::Arc;

use serde_json::json;

use super::{Runtime, Sandbox};
use crate::Answer;
use crate::faults::Faults;

/// Holds a fixed set of sandboxes.
#[derive(Debug, Default)]
pub struct Simulated {
    faults: Arc<Faults>,
    sandboxes: Vec<Sandbox>,
}

impl Simulated {
    /// A runtime with these running sandboxes. Answers are ordered by id; those of one id keep the given order.
    pub fn new(faults: Arc<Faults>, mut sandboxes: Vec<Sandbox>) -> Self {
        sandboxes.sort_by(|left, right| left.id.cmp(&right.id));
        Self { faults, sandboxes }
    }
}

impl Runtime for Simulated {
    fn list_running(&self) -> Answer<'_, Result<Vec<Sandbox>, String>> {
        let fault = self.faults.whole("sandboxes.list-running", &json!({}));
        let answer = fault.unwrap_or_else(|| Ok(self.sandboxes.clone()));
        Box::pin(std::future::ready(answer))
    }
}
