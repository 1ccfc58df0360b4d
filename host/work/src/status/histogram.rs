//! A histogram of durations, in buckets that Prometheus can add up.

use std::time::Duration;

/// Upper bounds of the buckets in seconds: the default of the Prometheus client libraries, extended by the times in
/// which an Engine deploys resources and by the pauses between retries.
pub const BOUNDS: [f64; 16] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// For each of [`BOUNDS`], the number of durations that are not longer.
    pub counts: [u64; BOUNDS.len()],
    /// The number of durations.
    pub count: u64,
    /// The sum in seconds.
    pub sum: f64,
}

impl Histogram {
    /// Adds one duration.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        for (bound, count) in BOUNDS.iter().zip(&mut self.counts) {
            *count += u64::from(seconds <= *bound);
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// The same, in milliseconds.
    pub fn observe_ms(&mut self, took_ms: u64) {
        self.observe(Duration::from_millis(took_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_holds_all_that_were_at_most_as_long() {
        let mut histogram = Histogram::default();
        for ms in [0, 1, 5, 999_999] {
            histogram.observe_ms(ms);
        }
        assert_eq!(histogram.counts[..3], [2, 3, 3]);
        assert_eq!(histogram.counts[BOUNDS.len() - 1], 3);
        assert_eq!(histogram.count, 4);
        assert!((histogram.sum - 1000.005).abs() < 1e-9, "{}", histogram.sum);
    }
}
