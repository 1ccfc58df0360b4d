//! What a guest asks, logs and measures, in memory: for its native tests.
//!
//! A guest's simulation of its imports holds a [`Transcript`] and implements [`Simulated`]; it then has the log and
//! metrics, and may use the transcript for its own questions and their faults.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "part of tests alone: what is wrong fails at once"
)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{Level, Telemetry};

/// A simulation that records its log and metrics in a transcript.
pub trait Simulated {
    /// The record.
    fn record(&mut self) -> &mut Transcript;
}

/// An import that gives a different answer for a while.
#[derive(Debug, Clone)]
struct Fault {
    call: String,
    answer: Value,
    /// How many more calls it answers; `None` answers all.
    times: Option<u64>,
    /// Applies only to calls whose arguments contain this.
    matching: Value,
}

/// The questions since the last look, the pending faults, the log and the metrics. A series is named `name`, or
/// `name{key="value"}` with its labels.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    calls: Vec<Value>,
    faults: Vec<Fault>,
    /// The log: the message, then ` key=value` for each field.
    pub lines: Vec<(Level, String)>,
    /// The sum of each counter and the latest value of each gauge.
    pub metrics: BTreeMap<String, f64>,
    /// Every value of each gauge.
    pub gauges: BTreeMap<String, Vec<f64>>,
    /// Every value of each histogram.
    pub observed: BTreeMap<String, Vec<f64>>,
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

    /// The questions since the last call.
    pub fn take_calls(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.calls)
    }

    /// The log without levels.
    pub fn messages(&self) -> Vec<&str> {
        self.lines.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// `None` if the series was never touched.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied()
    }

    /// Checks the sum of a counter, or the latest value of a gauge.
    ///
    /// # Panics
    /// If it has another value, or was never touched.
    #[track_caller]
    pub fn expect_metric(&self, name: &str, value: f64) {
        assert_eq!(self.metric(name), Some(value), "{name}: {:?}", self.metrics);
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
        let call = fault.get("call").and_then(Value::as_str);
        self.faults.push(Fault {
            call: call.unwrap_or_else(|| panic!("{fault} has no text `call`")).to_owned(),
            answer: answer
                .unwrap_or_else(|| json!({"Err": fault.get("error").expect("a fault has an error or an answer")})),
            times: fault.get("times").map_or(Some(1), Value::as_u64),
            matching: fault.get("match").cloned().unwrap_or_else(|| json!({})),
        });
    }
}

impl<S: Simulated> Telemetry for S {
    fn log(&mut self, level: Level, message: &str, fields: &[(&str, &str)]) {
        let fields: Vec<String> = fields.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        self.record()
            .lines
            .push((level, format!("{message}{}", fields.concat())));
    }

    fn counter_add(&mut self, name: &str, labels: &[(&str, &str)], delta: u64) {
        *self.record().metrics.entry(series(name, labels)).or_default() += delta as f64;
    }

    fn gauge_set(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let series = series(name, labels);
        self.record().gauges.entry(series.clone()).or_default().push(value);
        self.record().metrics.insert(series, value);
    }

    fn histogram_observe(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.record()
            .observed
            .entry(series(name, labels))
            .or_default()
            .push(value);
    }
}

fn series(name: &str, labels: &[(&str, &str)]) -> String {
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    if labels.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", labels.join(","))
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
