//! Renderers of a scenario: each call succeeds, unless a fault answers.

use std::sync::Arc;

use trueup_journal::By;

use super::{Call, Renderers};
use crate::Answer;
use crate::faults::Faults;

/// See the module.
#[derive(Debug, Default)]
pub struct Simulated {
    faults: Arc<Faults>,
}

impl Simulated {
    /// Accepts everything that no fault refuses.
    pub fn new(faults: Arc<Faults>) -> Self {
        Self { faults }
    }
}

impl Renderers for Simulated {
    fn render<'a>(&'a self, _by: By, call: Call) -> Answer<'a, Result<(), String>> {
        let answer = self.faults.whole(call.name(), &call).unwrap_or(Ok(()));
        Box::pin(std::future::ready(answer))
    }
}
