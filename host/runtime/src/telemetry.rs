//! Counts of what the program's exporter of traces does, in the metrics of the host that runs.
//!
//! The exporter is the program's: it begins before a host does and outlives it. So it counts here, and whoever has begun last
//! is who shows it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use trueup_capabilities::metrics::{HOST, Line, Registry};

static SHOWN_BY: Mutex<Weak<Registry>> = Mutex::new(Weak::new());

/// From now on these metrics show the counts.
pub(crate) fn count_in(metrics: &Arc<Registry>) {
    *SHOWN_BY.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(metrics);
}

/// So many spans were given to the collector: `trueup_spans_exported_total`.
pub fn exported(spans: u64) {
    count("trueup_spans_exported_total", spans);
}

/// So many spans were dropped, since the collector did not take them or there was no room for them any more:
/// `trueup_spans_dropped_total`.
pub fn dropped(spans: u64) {
    count("trueup_spans_dropped_total", spans);
}

fn count(name: &str, spans: u64) {
    let metrics = SHOWN_BY.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    if let Some(metrics) = metrics {
        metrics.take(HOST, name, &[], Line::CounterAdd(spans));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_counted_by_whoever_runs() {
        // Nobody runs yet, or one that ended.
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
