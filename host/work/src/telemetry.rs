//! Counts the work of the program's trace exporter, in the metrics of the running host.
//!
//! The exporter belongs to the program: it starts before a host and outlives it. So the counts are kept here, and the
//! host that started last shows them.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use trueup_capabilities::metrics::Registry;

static SHOWN_BY: Mutex<Weak<Registry>> = Mutex::new(Weak::new());

/// From now on these metrics contain the counts.
pub(crate) fn count_in(metrics: &Arc<Registry>) {
    *SHOWN_BY.lock() = Arc::downgrade(metrics);
}

/// Counts spans that the collector received: `trueup_spans_exported_total`.
pub fn exported(spans: u64) {
    count("trueup_spans_exported_total", spans);
}

/// Counts dropped spans, which the collector refused or which found no space in the queue:
/// `trueup_spans_dropped_total`.
pub fn dropped(spans: u64) {
    count("trueup_spans_dropped_total", spans);
}

fn count(name: &str, spans: u64) {
    let metrics = SHOWN_BY.lock().upgrade();
    if let Some(metrics) = metrics {
        metrics.count(name, &[], spans);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_counted_for_the_running_subscriber() {
        // No host runs yet, or the last one has ended.
        dropped(1);
        let metrics = Arc::new(Registry::default());
        count_in(&metrics);
        exported(2);
        dropped(3);
        let number = |name: &str| metrics.number(name);
        assert_eq!(number("trueup_spans_exported_total"), Some(2.0));
        assert_eq!(number("trueup_spans_dropped_total"), Some(3.0));
    }
}
