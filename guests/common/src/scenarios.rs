//! Runs scenario files against a guest's native code, so that a guest's own tests show what `trueup test` would.
//!
//! A minimal strict reader: it knows the keys that the scenarios of guests with this harness use, and fails at any
//! other. It has no clock and no timers. The file is trusted: an error in it panics.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "part of tests alone: what is wrong fails where it stands"
)]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::text;

/// A guest and its simulated world, as a scenario sees them.
pub trait Subject: Sized {
    /// A new instance in the world of `given`.
    ///
    /// # Errors
    /// As `lifecycle.init`.
    fn start(config: &str, given: &Map<String, Value>) -> Result<Self, String>;
    /// Calls an export: `interface.function` in WIT spelling, arguments by name. Returns the answer in the notation of
    /// docs/guests.md.
    fn call(&mut self, export: &str, args: Value) -> Value;
    /// A new instance in the same world, with or without the state of the old one.
    fn restart(&mut self, config: &str, carry_state: bool);
    /// A part of the world other than `metrics`.
    fn state(&self, part: &str) -> Value;
    /// The questions, the pending faults and the metrics.
    fn transcript(&mut self) -> &mut Transcript;
}

/// An import that gives a different answer for a while.
#[derive(Debug, Clone)]
struct Fault {
    call: String,
    answer: Value,
    /// `None` means for ever
    times: Option<u64>,
    /// Applies only to calls whose arguments contain this.
    matching: Value,
}

/// The questions of one step, the pending faults, and the metrics.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    calls: Vec<Value>,
    faults: Vec<Fault>,
    metrics: BTreeMap<String, f64>,
}

impl Transcript {
    /// Records a question. Returns the answer of a pending fault, if there is one; then nothing else happens.
    pub fn ask(&mut self, call: &str, args: &Value) -> Option<Value> {
        self.calls.push(json!({"call": call, "args": args}));
        let fits = |fault: &Fault| fault.call == call && fault.times != Some(0) && contains(args, &fault.matching);
        let fault = self.faults.iter_mut().find(|fault| fits(fault))?;
        fault.times = fault.times.map(|times| times - 1);
        Some(fault.answer.clone())
    }

    /// Adds to a counter without labels.
    pub fn counter_add(&mut self, name: &str, delta: f64) {
        *self.metrics.entry(name.to_owned()).or_default() += delta;
    }

    /// Sets a gauge without labels.
    pub fn gauge_set(&mut self, name: &str, value: f64) {
        self.metrics.insert(name.to_owned(), value);
    }

    /// The questions since the last call.
    pub fn take_calls(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.calls)
    }

    /// `None` if the series was never touched.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied()
    }

    /// Removes all faults.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Makes an import fail: a `fault` step as scenarios write it.
    ///
    /// # Panics
    /// If it is no such step.
    pub fn add_fault(&mut self, fault: &Value) {
        let answer = fault.get("answer").cloned();
        self.faults.push(Fault {
            call: text_of(fault, "call"),
            answer: answer
                .unwrap_or_else(|| json!({"Err": fault.get("error").expect("a fault has an error or an answer")})),
            times: fault.get("times").map_or(Some(1), Value::as_u64),
            matching: fault.get("match").cloned().unwrap_or_else(|| json!({})),
        });
    }
}

/// Runs every scenario of every file in the folder; returns how many there were.
///
/// # Panics
/// At the first step that shows something other than expected.
#[must_use]
pub fn run<S: Subject>(folder: &Path) -> usize {
    let entries = folder
        .read_dir()
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("a folder can be read").path())
        .collect();
    files.sort();
    files.iter().map(|file| run_file::<S>(file)).sum()
}

fn run_file<S: Subject>(file: &Path) -> usize {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let options = serde_saphyr::options! { strict_booleans: true };
    let document: Value = serde_saphyr::from_str_with_options(&text, options)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let scenarios = match document {
        Value::Array(scenarios) => scenarios,
        one => vec![one],
    };
    for scenario in &scenarios {
        let place = format!("{}: {}", file.display(), text_of(scenario, "name"));
        only(
            &place,
            scenario,
            &[
                "name",
                "about",
                "guest",
                "config",
                "expect_init_error",
                "given",
                "steps",
            ],
        );
        run_one::<S>(&place, scenario);
    }
    scenarios.len()
}

fn run_one<S: Subject>(place: &str, scenario: &Value) {
    let config = scenario.get("config").map_or_else(|| "{}".to_owned(), text::json);
    let given = scenario
        .get("given")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let started = S::start(&config, &given);
    if let Some(part) = scenario.get("expect_init_error").and_then(Value::as_str) {
        let error = started.err().unwrap_or_else(|| panic!("{place}: init took {config}"));
        assert!(error.contains(part), "{place}: {error}");
        return;
    }
    let mut subject = started.unwrap_or_else(|error| panic!("{place}: {error}"));
    let steps = scenario
        .get("steps")
        .and_then(Value::as_array)
        .expect("a scenario has steps");
    for (index, step) in steps.iter().enumerate() {
        run_step(&format!("{place}: step {index}"), &mut subject, &config, step);
    }
}

fn run_step<S: Subject>(place: &str, subject: &mut S, config: &str, step: &Value) {
    only(
        place,
        step,
        &[
            "call",
            "args",
            "expect",
            "expect_calls",
            "fault",
            "clear_faults",
            "restart",
            "expect_state",
        ],
    );
    subject.transcript().take_calls();
    if let Some(export) = step.get("call").and_then(Value::as_str) {
        let answer = subject.call(export, step.get("args").cloned().unwrap_or_else(|| json!({})));
        if let Some(expected) = step.get("expect") {
            assert_eq!(&answer, expected, "{place}: {export}");
        }
        if let Some(expected) = step.get("expect_calls") {
            let calls = Value::Array(subject.transcript().take_calls());
            assert_eq!(&calls, expected, "{place}: calls of {export}");
        }
    } else if let Some(fault) = step.get("fault") {
        subject.transcript().add_fault(fault);
    } else if step.get("clear_faults").is_some() {
        subject.transcript().clear_faults();
    } else if let Some(restart) = step.get("restart") {
        subject.restart(
            config,
            restart
                .get("carry_state")
                .and_then(Value::as_bool)
                .expect("a restart says what it carries"),
        );
    } else if let Some(parts) = step.get("expect_state").and_then(Value::as_object) {
        for (part, expected) in parts {
            check_state(place, subject, part, expected);
        }
    } else {
        panic!("{place}: does nothing");
    }
}

fn check_state<S: Subject>(place: &str, subject: &mut S, part: &str, expected: &Value) {
    if part != "metrics" {
        assert_eq!(&subject.state(part), expected, "{place}: {part}");
        return;
    }
    for (name, number) in expected.as_object().expect("metrics are an object") {
        let shown = subject.transcript().metric(name);
        assert_eq!(shown, number.as_f64(), "{place}: {name}");
    }
}

/// Compares objects by subset, the rest by equality.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part))),
        _ => whole == part,
    }
}

fn text_of(value: &Value, key: &str) -> String {
    let text = value.get(key).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("{value} has no text `{key}`")).to_owned()
}

/// Fails at an unknown key, which would check nothing.
fn only(place: &str, value: &Value, keys: &[&str]) {
    for key in value.as_object().unwrap_or_else(|| panic!("{place}: no object")).keys() {
        assert!(keys.contains(&key.as_str()), "{place}: unknown key `{key}`");
    }
}
