//! The result of a loop, as a run shows it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use trueup_base::text::counted;

use super::Rules;

/// The result of a loop.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Whether everything is in its desired state and everything could be read.
    pub is_true: bool,
    /// The line to begin with, if everything was in its desired state before. `None` if it was not.
    pub unchanged: Option<&'static str>,
    /// Why it ended early. `None` if it did not.
    pub cut_short: Option<String>,
    /// What could not be read, or is not used.
    pub problems: Vec<String>,
    /// Keys that nothing names but whose objects are kept: something that can't be read may name them.
    pub held: Vec<String>,
    /// What is not in its desired state, and why, if the run did not say so before.
    pub failed: Vec<(String, String)>,
    /// The last line.
    pub line: String,
    /// The same as JSON.
    pub json: Box<RawValue>,
}

/// The results of all keys of a loop, as JSON has them.
#[derive(Serialize)]
pub(super) struct KeyResults {
    /// Keys that are in their desired state.
    pub(super) succeeded: usize,
    /// Keys that failed, and why.
    pub(super) failed: BTreeMap<String, String>,
    /// What was done, such as `created`, and how often.
    #[serde(flatten)]
    pub(super) did: BTreeMap<&'static str, u64>,
    pub(super) problems: Vec<String>,
    pub(super) held: Vec<String>,
    pub(super) cut_short: Option<String>,
}

impl Summary {
    /// # Errors
    /// If the summary has no form in JSON.
    pub(super) fn of_keys(rules: &Rules, results: KeyResults) -> serde_json::Result<Self> {
        let KeyResults {
            succeeded, failed, did, ..
        } = &results;
        let failed = failed.len();
        let is_true = failed == 0 && results.problems.is_empty() && results.cut_short.is_none();
        let changed_nothing = is_true && did.values().all(|count| *count == 0);
        let did: Vec<String> = did.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let keys = counted(succeeded + failed, rules.word, &format!("{}s", rules.word));
        Ok(Self {
            is_true,
            unchanged: changed_nothing.then_some(rules.unchanged),
            line: format!("{keys}: {succeeded} true, {failed} failed; {}", did.join(", ")),
            json: to_raw_value(&results)?,
            cut_short: results.cut_short,
            problems: results.problems,
            held: results.held,
            failed: Vec::new(),
        })
    }
}
