//! The results of a run of scenarios: line by line for people, as one value for programs, and as JUnit XML for CI
//! systems.

use std::fmt::{self, Display, Formatter, Write as _};

use serde::{Serialize, Serializer};
use serde_json::Value;
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
    /// Its first step with an unexpected result. `None` if it passed.
    pub failure: Option<Failure>,
    /// Its later steps with unexpected results.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more_failures: Vec<Failure>,
    /// How long it took, in milliseconds of real time.
    pub took_ms: u64,
}

impl Outcome {
    /// All steps with unexpected results.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.failure.iter().chain(&self.more_failures)
    }
}

/// A step with an unexpected result.
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
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Problem {
    /// The message.
    pub message: String,
    /// By path: `recorded` is the expected value, `replayed` the actual one.
    #[serde(serialize_with = "as_expected_and_was", skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// What could stand in the file in place of the expectation. `None` if nothing could.
    #[serde(skip)]
    pub observed: Option<Observed>,
}

/// What a step showed in place of an expectation.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The place of the expectation in the step: `expect`, `expect_state.lbaas.objects`.
    pub place: String,
    /// The whole value.
    pub value: Value,
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
        let lines = format!("{}: {}\n{}", failed.file, failed.name, failed.failure.as_ref()?);
        Some(lines.lines().map(str::trim).collect::<Vec<_>>().join(" "))
    }

    /// The document of JUnit: a suite for each file, a case for each scenario.
    pub fn to_junit(&self) -> String {
        let errors = self.errors.len();
        let tests = self.scenarios.len() + errors;
        let took_ms = self.scenarios.iter().map(|outcome| outcome.took_ms).sum();
        let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
        let counts = counts(tests, self.failed, errors, took_ms);
        // Writing to a String can't fail, here and below.
        let _ = writeln!(xml, "<testsuites name=\"trueup\" {counts}>");
        for outcomes in self.scenarios.chunk_by(|one, other| one.file == other.file) {
            suite(&mut xml, outcomes);
        }
        if errors > 0 {
            let counts = self::counts(errors, 0, errors, 0);
            let _ = writeln!(xml, "  <testsuite name=\"errors\" {counts}>");
            for error in &self.errors {
                let error = escaped(error);
                let _ = writeln!(xml, "    <testcase name=\"{error}\" classname=\"trueup\" time=\"0\">");
                let _ = writeln!(xml, "      <error message=\"{error}\"/>\n    </testcase>");
            }
            xml.push_str("  </testsuite>\n");
        }
        xml.push_str("</testsuites>\n");
        xml
    }

    pub(crate) fn take(&mut self, outcome: Outcome) {
        let failed = usize::from(outcome.failure.is_some());
        self.failed += failed;
        self.passed += 1 - failed;
        self.scenarios.push(outcome);
    }
}

/// The summary line.
impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// One line, followed by the differences of each step.
impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let word = if self.failure.is_none() { "ok" } else { "FAILED" };
        write!(f, "{word}  {}: {} ({} ms)", self.file, self.name, self.took_ms)?;
        self.failures().try_for_each(|failure| write!(f, "\n{failure}"))
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.place())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
    }
}

impl Failure {
    /// The step: `step 2 (line 9), call reconciliation.reconcile`.
    pub(crate) fn place(&self) -> String {
        let Self { step, line, doing, .. } = self;
        match step {
            Some(step) => format!("step {step} (line {line}), {doing}"),
            None => format!("line {line}, {doing}"),
        }
    }
}

impl Problem {
    pub(crate) fn new(message: String, differences: Vec<Difference>) -> Self {
        Self {
            message,
            differences,
            observed: None,
        }
    }

    /// The same, and what could stand at this place of the step.
    pub(crate) fn observing(mut self, place: impl Into<String>, value: Value) -> Self {
        let place = place.into();
        self.observed = Some(Observed { place, value });
        self
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
    serializer.collect_seq(differences.iter().map(|of| Shown {
        path: &of.path,
        expected: &of.recorded,
        was: &of.replayed,
    }))
}

/// The outcomes of one file.
fn suite(xml: &mut String, outcomes: &[Outcome]) {
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
    let took_ms = outcomes.iter().map(|outcome| outcome.took_ms).sum();
    let file = escaped(outcomes.first().map_or("", |outcome| &outcome.file));
    let counts = counts(outcomes.len(), failed, 0, took_ms);
    let _ = writeln!(xml, "  <testsuite name=\"{file}\" {counts}>");
    for outcome in outcomes {
        let name = escaped(&outcome.name);
        let guest = escaped(&outcome.guest);
        let line = outcome.line;
        let time = seconds(outcome.took_ms);
        let case = format!(
            "    <testcase name=\"{name}\" classname=\"{guest}\" file=\"{file}\" line=\"{line}\" time=\"{time}\""
        );
        let Some(first) = &outcome.failure else {
            let _ = writeln!(xml, "{case}/>");
            continue;
        };
        let message = escaped(&first.place());
        let failures: Vec<String> = outcome.failures().map(ToString::to_string).collect();
        let text = escaped(&failures.join("\n"));
        let _ = writeln!(
            xml,
            "{case}>\n      <failure message=\"{message}\">{text}</failure>\n    </testcase>"
        );
    }
    xml.push_str("  </testsuite>\n");
}

fn counts(tests: usize, failures: usize, errors: usize, took_ms: u64) -> String {
    let time = seconds(took_ms);
    format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{time}\"")
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// A text in an element or an attribute. XML has no place for most control characters, not even as references.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trueup_journal::differences_under;

    use super::*;

    fn outcome(failure: Option<Failure>) -> Outcome {
        Outcome {
            file: "a.yaml".into(),
            name: "a name".into(),
            line: 3,
            guest: "g".into(),
            failure,
            more_failures: Vec::new(),
            took_ms: 5,
        }
    }

    fn failure() -> Failure {
        let differences = differences_under("", &json!({"Ok": {"created": 4}}), &json!({"Ok": {"created": 3}}));
        let problems = vec![
            Problem {
                message: "the answer differs:".into(),
                differences,
                observed: None,
            },
            Problem {
                message: "first\n  second".into(),
                differences: vec![],
                observed: None,
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
        assert_eq!(outcome(None).to_string(), "ok  a.yaml: a name (5 ms)");
        let text = "FAILED  a.yaml: a name (5 ms)\n  step 2 (line 9), call a.b\n    the answer differs:\n      \
                    Ok.created: expected 4, was 3\n    first\n      second";
        assert_eq!(outcome(Some(failure())).to_string(), text);
    }

    #[test]
    fn junit_has_a_case_for_each_scenario_and_escapes_what_xml_cannot_hold() {
        let mut summary = Summary::default();
        summary.take(outcome(None));
        let mut failed = outcome(Some(failure()));
        failed.name = "a < \"b\" & \u{1b}".to_owned();
        failed.more_failures.push(failure());
        summary.take(failed);
        summary.errors.push("c.yaml: <nothing>".to_owned());
        let xml = summary.to_junit();
        let lines: Vec<&str> = xml.lines().map(str::trim).collect();
        let text = "  step 2 (line 9), call a.b&#10;    the answer differs:&#10;      Ok.created: expected 4, was 3&#10;    \
                    first&#10;      second";
        let expected = [
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
            "<testsuites name=\"trueup\" tests=\"3\" failures=\"1\" errors=\"1\" time=\"0.010\">",
            "<testsuite name=\"a.yaml\" tests=\"2\" failures=\"1\" errors=\"0\" time=\"0.010\">",
            "<testcase name=\"a name\" classname=\"g\" file=\"a.yaml\" line=\"3\" time=\"0.005\"/>",
            "<testcase name=\"a &lt; &quot;b&quot; &amp; \u{fffd}\" classname=\"g\" file=\"a.yaml\" line=\"3\" time=\"0.005\">",
            &format!("<failure message=\"step 2 (line 9), call a.b\">{text}&#10;{text}</failure>"),
            "</testcase>",
            "</testsuite>",
            "<testsuite name=\"errors\" tests=\"1\" failures=\"0\" errors=\"1\" time=\"0.000\">",
            "<testcase name=\"c.yaml: &lt;nothing&gt;\" classname=\"trueup\" time=\"0\">",
            "<error message=\"c.yaml: &lt;nothing&gt;\"/>",
            "</testcase>",
            "</testsuite>",
            "</testsuites>",
        ];
        assert_eq!(lines, expected);
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
