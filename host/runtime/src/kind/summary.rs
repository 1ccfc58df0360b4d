//! The result of a loop, as a run shows it.

use std::fmt::{Debug, Display};

use serde_json::value::{RawValue, to_raw_value};

use crate::work::keyed;

/// The result of a loop. Its text is its last line.
pub trait Summary: Debug + Display {
    /// Whether everything is in its desired state and everything could be read.
    fn is_true(&self) -> bool;

    /// The line in place of what was done, if everything was in its desired state before. `None` if it was not.
    fn unchanged(&self) -> Option<&'static str> {
        None
    }

    /// Why it ended early. `None` if it did not.
    fn cut_short(&self) -> Option<&str> {
        None
    }

    /// What could not be read, or is not used.
    fn problems(&self) -> &[String] {
        &[]
    }

    /// Keys that nothing names but whose objects are kept: something that can't be read may name them.
    fn held(&self) -> &[String] {
        &[]
    }

    /// What is not in its desired state, and why, if the run did not say so before.
    fn failed(&self) -> &[(String, String)] {
        &[]
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// Never in practice: it has a form in JSON.
    fn json(&self) -> serde_json::Result<Box<RawValue>>;
}

impl Summary for keyed::Summary {
    fn is_true(&self) -> bool {
        self.is_true()
    }

    fn unchanged(&self) -> Option<&'static str> {
        self.changed_nothing().then_some(self.unchanged)
    }

    fn cut_short(&self) -> Option<&str> {
        self.cut_short.as_deref()
    }

    fn problems(&self) -> &[String] {
        &self.problems
    }

    fn held(&self) -> &[String] {
        &self.held
    }

    fn json(&self) -> serde_json::Result<Box<RawValue>> {
        to_raw_value(self)
    }
}
