//! How many calls there are and how long they take, as metrics show it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Call statistics of one guest, over all its instances. Each call is counted where it is made.
#[derive(Debug, Default)]
pub struct Calls(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    working: usize,
    answered: u64,
    faults: u64,
    cut: u64,
    took: Histogram,
    /// The time of calls that [`Calls::take_time`] has not returned.
    time: Duration,
}

/// A call in progress. If it is dropped without an end, it was interrupted while it slept, or abandoned.
pub(crate) struct Call<'a> {
    calls: &'a Calls,
    begun: Instant,
    ended: bool,
}

impl Calls {
    /// Begins a call.
    pub(crate) fn begin(&self) -> Call<'_> {
        self.0.lock().working += 1;
        Call {
            calls: self,
            begun: Instant::now(),
            ended: false,
        }
    }

    /// The number of calls in progress, including those that sleep.
    pub fn working(&self) -> usize {
        self.0.lock().working
    }

    /// Counts by outcome: `answered` (also with an error from the guest), `fault` (the guest trapped or exceeded a
    /// limit), `cut` (interrupted while it slept).
    pub fn outcomes(&self) -> [(&'static str, u64); 3] {
        let it = self.0.lock();
        [("answered", it.answered), ("cut", it.cut), ("fault", it.faults)]
    }

    /// How long the calls took together that ended since this was last asked.
    pub fn take_time(&self) -> Duration {
        std::mem::take(&mut self.0.lock().time)
    }

    /// The durations of the calls.
    pub fn took(&self) -> Histogram {
        self.0.lock().took.clone()
    }
}

impl Call<'_> {
    /// Ends a call: the guest answered, or it failed.
    pub(crate) fn end(mut self, is_answered: bool) {
        self.ended = true;
        let mut counted = self.calls.0.lock();
        let took = self.begun.elapsed();
        counted.took.observe(took);
        counted.time += took;
        counted.answered += u64::from(is_answered);
        counted.faults += u64::from(!is_answered);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut counted = self.calls.0.lock();
        counted.working = counted.working.saturating_sub(1);
        counted.cut += u64::from(!self.ended);
    }
}

/// Upper bounds of the buckets in seconds: the default of the Prometheus client libraries, extended by the times in
/// which an Engine deploys resources and by the pauses between retries.
pub const BOUNDS: [f64; 16] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// A histogram of durations, in buckets that Prometheus can add up.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_in_work_until_it_ends_in_one_of_three_ways() {
        let calls = Calls::default();
        let (one, two, three) = (calls.begin(), calls.begin(), calls.begin());
        assert_eq!(calls.working(), 3);
        one.end(true);
        two.end(false);
        drop(three);
        assert_eq!(calls.working(), 0);
        assert_eq!(calls.outcomes(), [("answered", 1), ("cut", 1), ("fault", 1)]);
        assert_eq!(calls.took().count, 2);
        assert!(calls.take_time() > Duration::ZERO);
        assert_eq!(calls.take_time(), Duration::ZERO, "it was returned");
    }

    #[test]
    fn each_bucket_holds_all_that_were_at_most_as_long() {
        let mut histogram = Histogram::default();
        for ms in [0, 1, 5, 999_999] {
            histogram.observe(Duration::from_millis(ms));
        }
        assert_eq!(histogram.counts[..3], [2, 3, 3]);
        assert_eq!(histogram.counts[BOUNDS.len() - 1], 3);
        assert_eq!(histogram.count, 4);
        assert!((histogram.sum - 1000.005).abs() < 1e-9, "{}", histogram.sum);
    }
}
