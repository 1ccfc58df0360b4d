//! The most requests that arrived within one second.
//!
//! Pure: time is an argument, and nothing is awaited.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::traffic::OwnCounters;

const SECOND_NS: u64 = 1_000_000_000;

/// What the server counts of arrivals.
#[derive(Default, Serialize)]
pub(super) struct Arrivals {
    /// The most requests that arrived within one second, whatever its start.
    requests_per_second_max: usize,
    /// The arrivals of the last second: how many at which moment.
    #[serde(skip)]
    recent: BTreeMap<u64, usize>,
}

impl OwnCounters for Arrivals {
    fn arrived(&mut self, now_ns: u64) {
        *self.recent.entry(now_ns).or_default() += 1;
        self.recent = self.recent.split_off(&now_ns.saturating_sub(SECOND_NS - 1));
        let in_second = self.recent.values().sum();
        self.requests_per_second_max = self.requests_per_second_max.max(in_second);
    }

    fn clear(&mut self) {
        self.requests_per_second_max = 0;
    }
}
