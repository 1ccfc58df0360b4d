//! The packet filter of a scenario: accepts every transaction, unless a fault answers.

use std::sync::Arc;

use serde_json::json;

use super::Api;
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

impl Api for Simulated {
    fn apply<'a>(&'a self, ruleset: &'a str) -> Answer<'a, Result<(), String>> {
        let answer = self.faults.whole("nftables.apply", &json!({ "ruleset": ruleset }));
        Box::pin(std::future::ready(answer.unwrap_or(Ok(()))))
    }
}
