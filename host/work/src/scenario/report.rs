//! The results of a run of scenarios: line by line for people, as one value for programs.

use std::fmt::{self, Display, Formatter};

use serde::{Serialize, Serializer};
use trueup_journal::{Difference, Differing, render_differences};

/// The result of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The path as given or found.
    pub file: String,
    /// The scenario's name.
    pub name: String,
    /// The line on which it begins.
    pub line: u64,
    /// The guest.
    pub guest: String,
    /// Where it stopped. `None` if it passed.
    pub failure: Option<Failure>,
}

/// The first step with an unexpected result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// Counted from 1. `None` before the first step.
    pub step: Option<usize>,
    /// The line of the step, or of the scenario.
    pub line: u64,
    /// The action: `call reconciliation.reconcile`.
    pub doing: String,
    /// All unexpected results of this step.
    pub problems: Vec<Problem>,
}

/// One unexpected result.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Problem {
    /// The message.
    pub message: String,
    /// By path: `recorded` is the expected value, `replayed` the actual one.
    #[serde(serialize_with = "as_expected_and_was", skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
}

/// All outcomes of one run, in order of the files.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The number of scenarios that passed.
    pub passed: usize,
    /// The number of scenarios that failed.
    pub failed: usize,
    /// Every outcome.
    pub scenarios: Vec<Outcome>,
    /// Files that cannot be read, and guests that cannot be loaded: one line each.
    pub errors: Vec<String>,
}

impl Summary {
    /// 0 if all passed, 1 if some failed, 2 if a file could not be read, a guest could not be loaded, or there was
    /// nothing to do.
    pub fn exit_code(&self) -> u8 {
        if !self.errors.is_empty() || self.scenarios.is_empty() {
            2
        } else {
            u8::from(self.failed > 0)
        }
    }

    /// The first failed scenario and its error, on one line. `None` if all passed.
    pub fn first_failure(&self) -> Option<String> {
        let failed = self.scenarios.iter().find(|outcome| outcome.failure.is_some())?;
        let lines = failed.to_string();
        let line = lines.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Some(line.trim_start_matches("FAILED").trim_start().to_owned())
    }

    pub(super) fn take(&mut self, outcome: Outcome) {
        if outcome.failure.is_some() {
            self.failed += 1;
        } else {
            self.passed += 1;
        }
        self.scenarios.push(outcome);
    }
}

/// The summary line.
impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// One line, followed by the differences.
impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            file, name, failure, ..
        } = self;
        match failure {
            None => write!(f, "ok  {file}: {name}"),
            Some(failure) => write!(f, "FAILED  {file}: {name}\n{failure}"),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            step,
            line,
            doing,
            problems,
        } = self;
        match step {
            Some(step) => write!(f, "  step {step} (line {line}), {doing}")?,
            None => write!(f, "  line {line}, {doing}")?,
        }
        problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "    {}", self.message.replace('\n', "\n    "))?;
        let differences = render_differences(&self.differences, "expected", "was", "      ");
        differences.lines().try_for_each(|line| write!(f, "\n{line}"))
    }
}

fn as_expected_and_was<S: Serializer>(differences: &[Difference], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shown<'a> {
        path: &'a str,
        expected: &'a Option<Differing>,
        was: &'a Option<Differing>,
    }
    serializer.collect_seq(differences.iter().map(
        |Difference {
             path,
             recorded,
             replayed,
         }| Shown {
            path,
            expected: recorded,
            was: replayed,
        },
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trueup_journal::differences;

    use super::*;

    fn outcome(failure: Option<Failure>) -> Outcome {
        Outcome {
            file: "a.yaml".into(),
            name: "a name".into(),
            line: 3,
            guest: "g".into(),
            failure,
        }
    }

    fn failure() -> Failure {
        let differences = differences(&json!({"Ok": {"created": 4}}), &json!({"Ok": {"created": 3}}));
        let problems = vec![
            Problem {
                message: "the answer differs:".into(),
                differences,
            },
            Problem {
                message: "first\n  second".into(),
                differences: vec![],
            },
        ];
        Failure {
            step: Some(2),
            line: 9,
            doing: "call a.b".into(),
            problems,
        }
    }

    #[test]
    fn an_outcome_is_a_line_and_below_it_what_differs() {
        assert_eq!(outcome(None).to_string(), "ok  a.yaml: a name");
        let text = "FAILED  a.yaml: a name\n  step 2 (line 9), call a.b\n    the answer differs:\n      \
                    Ok.created: expected 4, was 3\n    first\n      second";
        assert_eq!(outcome(Some(failure())).to_string(), text);
    }

    #[test]
    fn the_exit_code_says_what_is_worst() {
        let mut summary = Summary::default();
        assert_eq!(summary.exit_code(), 2, "nothing was done");
        summary.take(outcome(None));
        assert_eq!(
            (summary.exit_code(), summary.to_string().as_str()),
            (0, "1 passed, 0 failed")
        );
        summary.take(outcome(Some(failure())));
        assert_eq!(
            (summary.exit_code(), summary.to_string().as_str()),
            (1, "1 passed, 1 failed")
        );
        summary.errors.push("a file".into());
        assert_eq!(summary.exit_code(), 2);
    }

    #[test]
    fn programs_get_both_sides_as_values() {
        let value = serde_json::to_value(failure()).unwrap();
        let difference = json!({"path": "Ok.created", "expected": {"value": 4}, "was": {"value": 3}});
        assert_eq!(value["problems"][0]["differences"], json!([difference]));
        assert_eq!(value["problems"][1], json!({"message": "first\n  second"}));
    }
}
