//! The packet filter of a scenario: accepts every transaction.

use super::Api;
use crate::Answer;

/// See the module.
#[derive(Debug, Default)]
pub struct Simulated;

impl Api for Simulated {
    fn apply<'a>(&'a self, _ruleset: &'a str) -> Answer<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
