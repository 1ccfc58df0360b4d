//! The result of a run of NEGs.

use std::collections::BTreeMap;

use serde::Serialize;

/// The result of a run of NEGs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Keys whose NEGs are in their desired state.
    pub succeeded: usize,
    /// Keys that failed, and why.
    pub failed: BTreeMap<String, String>,
    /// Endpoints in attachments that succeeded.
    pub attached: u64,
    /// Endpoints in detachments that succeeded.
    pub detached: u64,
    /// Objects that could not be read or were not used.
    pub problems: Vec<String>,
    /// Keys that nothing names but whose NEGs are kept: something that can't be read may name them.
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
        let word = if keys == 1 { "neg" } else { "negs" };
        write!(
            f,
            "{keys} {word}: {} true, {} failed; {} attached, {} detached",
            self.succeeded,
            self.failed.len(),
            self.attached,
            self.detached
        )
    }
}
