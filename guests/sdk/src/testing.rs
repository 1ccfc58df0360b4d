//! What a guest logs and measures, in memory: for its native tests.
//!
//! A guest's simulation of its imports holds a [`Transcript`] and implements [`Simulated`]; it then has the log and
//! metrics.

use std::collections::BTreeMap;

use crate::{Level, Telemetry};

/// A simulation that records its log and metrics in a transcript.
pub trait Simulated {
    /// The record.
    fn record(&mut self) -> &mut Transcript;
}

/// The log and the metrics. A series is named `name`, or `name{key="value"}` with its labels.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
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
