//! The result of a run of keys.

use std::collections::BTreeMap;

use serde::Serialize;
use trueup_base::text::counted;

/// The result of a run of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// What one key is called, such as `service`.
    #[serde(skip)]
    pub(crate) word: &'static str,
    /// What is said in place of what was done, if every key was in its desired state before.
    #[serde(skip)]
    pub(crate) unchanged: &'static str,
    /// Keys that are in their desired state.
    pub(crate) succeeded: usize,
    /// Keys that failed, and why.
    pub(crate) failed: BTreeMap<String, String>,
    /// What was done, such as `created`, and how often.
    #[serde(flatten)]
    pub(crate) did: BTreeMap<&'static str, u64>,
    /// What could not be read, or is not used.
    pub(crate) problems: Vec<String>,
    /// Keys that nothing names but whose objects are kept: something that can't be read may name them.
    pub(crate) held: Vec<String>,
    /// Why it ended early. `None` if it did not.
    pub(crate) cut_short: Option<String>,
}

impl Summary {
    /// Whether every key is in its desired state and everything could be read.
    pub(crate) fn is_true(&self) -> bool {
        self.failed.is_empty() && self.problems.is_empty() && self.cut_short.is_none()
    }

    /// Whether every key was in its desired state before.
    pub(crate) fn changed_nothing(&self) -> bool {
        self.is_true() && self.did.values().all(|count| *count == 0)
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let failed = self.failed.len();
        let keys = self.succeeded + failed;
        let did: Vec<String> = self.did.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let keys = counted(keys, self.word, &format!("{}s", self.word));
        let (succeeded, did) = (self.succeeded, did.join(", "));
        write!(f, "{keys}: {succeeded} true, {failed} failed; {did}")
    }
}
