//! The result of a loop, as a run shows it.

use serde_json::value::{RawValue, to_raw_value};

use crate::keyed;

/// The result of a loop.
#[derive(Debug, Clone)]
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

impl Summary {
    /// # Errors
    /// If the summary has no form in JSON.
    pub(crate) fn of_keys(summary: keyed::Summary) -> serde_json::Result<Self> {
        Ok(Self {
            is_true: summary.is_true(),
            unchanged: summary.changed_nothing().then_some(summary.unchanged),
            line: summary.to_string(),
            json: to_raw_value(&summary)?,
            cut_short: summary.cut_short,
            problems: summary.problems,
            held: summary.held,
            failed: Vec::new(),
        })
    }
}
