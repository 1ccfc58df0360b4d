//! The packet filter of a scenario: accepts every transaction.

use super::Api;
use async_trait::async_trait;

/// See the module.
#[derive(Debug, Default)]
pub struct Simulated;

#[async_trait]
impl Api for Simulated {
    async fn apply(&self, _ruleset: &str) -> Result<(), String> {
        Ok(())
    }
}
