//! The result of a loop, as a run shows it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use trueup_base::text::counted;

use super::{Keyed, Reconciler};

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
struct KeyResults {
    /// Keys that are in their desired state.
    succeeded: usize,
    /// Keys that failed, and why.
    failed: BTreeMap<String, String>,
    /// What was done, such as `created`, and how often.
    #[serde(flatten)]
    did: BTreeMap<&'static str, u64>,
    problems: Vec<String>,
    held: Vec<String>,
    cut_short: Option<String>,
}

impl<W: Reconciler> Keyed<'_, W> {
    /// The result of the loop. `cut_short`: why it ended early.
    ///
    /// # Errors
    /// If the summary has no form in JSON.
    pub(super) fn summary(self, cut_short: Option<String>) -> serde_json::Result<Summary> {
        let rules = W::RULES;
        let all = self.last_results.len();
        let failed = self.last_results.into_iter();
        let failed: BTreeMap<_, _> = failed
            .filter_map(|(key, it)| Some((key.to_string(), it.err()?)))
            .collect();
        let is_true = failed.is_empty() && self.problems.is_empty() && cut_short.is_none();
        let results = KeyResults {
            succeeded: all - failed.len(),
            failed,
            did: self.world.did(self.effects).into(),
            problems: self.problems,
            held: self.held.iter().map(ToString::to_string).collect(),
            cut_short,
        };
        let changed_nothing = is_true && results.did.values().all(|count| *count == 0);
        let did = results.did.iter().map(|(word, count)| format!("{count} {word}"));
        let did = did.collect::<Vec<_>>().join(", ");
        let keys = counted(all, rules.word, &format!("{}s", rules.word));
        let succeeded = results.succeeded;
        let failed = results.failed.len();
        Ok(Summary {
            is_true,
            unchanged: changed_nothing.then_some(rules.unchanged),
            line: format!("{keys}: {succeeded} true, {failed} failed; {did}"),
            json: to_raw_value(&results)?,
            cut_short: results.cut_short,
            problems: results.problems,
            held: results.held,
            failed: Vec::new(),
        })
    }
}
