//! The log, metrics and clock as traits, so that a guest's native tests can simulate them.

pub use crate::bindings::trueup::host::log::Level;
use crate::bindings::trueup::host::{clock, log, metrics};

/// The log and metrics, which every world has. Fields and labels are pairs of key and value.
pub trait Telemetry {
    /// `log.emit`
    fn log(&mut self, level: Level, message: &str, fields: &[(&str, &str)]);
    /// `metrics.counter-add`
    fn counter_add(&mut self, name: &str, labels: &[(&str, &str)], delta: u64);
    /// `metrics.gauge-set`
    fn gauge_set(&mut self, name: &str, labels: &[(&str, &str)], value: f64);
    /// `metrics.histogram-observe`
    fn histogram_observe(&mut self, name: &str, labels: &[(&str, &str)], value: f64);

    /// Sets a gauge to a number of things. A 32-bit memory can't hold more than `u32::MAX` of them.
    fn gauge_count(&mut self, name: &str, labels: &[(&str, &str)], count: usize) {
        self.gauge_set(name, labels, f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
    }

    /// Logs a warning.
    fn warn(&mut self, message: &str, fields: &[(&str, &str)]) {
        self.log(Level::Warn, message, fields);
    }

    /// Passes on a value that was read; logs a warning if there is none.
    fn or_warn<T>(&mut self, value: Option<T>, message: &str, fields: &[(&str, &str)]) -> Option<T> {
        if value.is_none() {
            self.warn(message, fields);
        }
        value
    }
}

/// The clock, for guests whose world has it.
pub trait Clock {
    /// `clock.now-ms`: milliseconds since the Unix epoch.
    fn now_ms(&mut self) -> u64;
}

/// The component's imports. A guest implements its own trait of imports for this type.
#[derive(Clone, Copy, Debug)]
pub struct Imports;

impl Telemetry for Imports {
    fn log(&mut self, level: Level, message: &str, fields: &[(&str, &str)]) {
        let field = |&(key, value): &(&str, &str)| log::Field {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        log::emit(level, message, &fields.iter().map(field).collect::<Vec<_>>());
    }

    fn counter_add(&mut self, name: &str, labels: &[(&str, &str)], delta: u64) {
        metrics::counter_add(name, &labelled(labels), delta);
    }

    fn gauge_set(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        metrics::gauge_set(name, &labelled(labels), value);
    }

    fn histogram_observe(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        metrics::histogram_observe(name, &labelled(labels), value);
    }
}

impl Clock for Imports {
    fn now_ms(&mut self) -> u64 {
        clock::now_ms()
    }
}

fn labelled(labels: &[(&str, &str)]) -> Vec<metrics::Label> {
    let label = |&(key, value): &(&str, &str)| metrics::Label {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    labels.iter().map(label).collect()
}
