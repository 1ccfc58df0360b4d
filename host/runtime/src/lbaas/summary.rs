//! The result of a run of Services.

use std::collections::BTreeMap;

use serde::Serialize;

/// The result of a run of Services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Keys that are in their desired state.
    pub succeeded: usize,
    /// Keys that failed, and why.
    pub failed: BTreeMap<String, String>,
    /// Objects created.
    pub created: u64,
    /// Objects destroyed.
    pub destroyed: u64,
    /// Manifests that could not be read or were not used.
    pub problems: Vec<String>,
    /// Keys that no manifest names but whose objects are kept: a manifest that can't be read may name them.
    pub held: Vec<String>,
    /// Why it ended early. `None` if it did not.
    pub cut_short: Option<String>,
}

impl Summary {
    /// Whether every key is in its desired state and everything could be read.
    pub fn is_true(&self) -> bool {
        self.failed.is_empty() && self.problems.is_empty() && self.cut_short.is_none()
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self.succeeded + self.failed.len();
        let word = if keys == 1 { "service" } else { "services" };
        let Self {
            succeeded,
            failed,
            created,
            destroyed,
            ..
        } = self;
        write!(
            f,
            "{keys} {word}: {succeeded} true, {} failed; {created} created, {destroyed} destroyed",
            failed.len()
        )
    }
}
