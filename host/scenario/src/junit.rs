//! A summary as JUnit XML, which CI systems read: a suite for each file, a case for each scenario.

use std::fmt::Write as _;

use crate::report::{Outcome, Summary};

impl Summary {
    /// The document.
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
}

/// The outcomes of one file.
fn suite(xml: &mut String, outcomes: &[Outcome]) {
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
    let took_ms = outcomes.iter().map(|outcome| outcome.took_ms).sum();
    let file = escaped(outcomes.first().map_or("", |outcome| &outcome.file));
    let counts = counts(outcomes.len(), failed, 0, took_ms);
    let _ = writeln!(xml, "  <testsuite name=\"{file}\" {counts}>");
    for outcome in outcomes {
        let (name, guest) = (escaped(&outcome.name), escaped(&outcome.guest));
        let (line, time) = (outcome.line, seconds(outcome.took_ms));
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
