//! Call statistics of one guest, over all its instances. Each call is counted where it is made.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::histogram::Histogram;
use super::shown::Times;

/// See the module.
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
        let counted = self.0.lock();
        [
            ("answered", counted.answered),
            ("cut", counted.cut),
            ("fault", counted.faults),
        ]
    }

    /// How long the calls took together that ended since this was last asked.
    pub fn take_time(&self) -> Duration {
        std::mem::take(&mut self.0.lock().time)
    }

    /// The durations of the calls.
    pub fn took(&self) -> Histogram {
        self.0.lock().took.clone()
    }

    /// The same in short.
    pub fn times(&self) -> Times {
        let counted = self.0.lock();
        Times {
            count: counted.took.count,
            seconds: counted.took.sum,
        }
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
        if is_answered {
            counted.answered += 1;
        } else {
            counted.faults += 1;
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut counted = self.calls.0.lock();
        counted.working = counted.working.saturating_sub(1);
        counted.cut += u64::from(!self.ended);
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
        assert_eq!(calls.times().count, 2);
        assert!(calls.take_time() > Duration::ZERO);
        assert_eq!(calls.take_time(), Duration::ZERO, "it was returned");
    }
}
