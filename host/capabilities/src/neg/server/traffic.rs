//! The requests in flight, and the counters of past ones.
//!
//! Pure: time is an argument, and there is no await.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Serialize;

use crate::sim::rate::Rate;

/// The counts since the start, or since the counters were last cleared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counters {
    /// By method of the API: `networkEndpointGroups.get`.
    requests: BTreeMap<&'static str, u64>,
    /// By status.
    answers: BTreeMap<u16, u64>,
    /// Connections closed by a fault or at the end.
    connections_cut: u64,
    /// Requests whose client disconnected before the answer.
    abandoned: u64,
    requests_in_flight_max: u64,
    /// Requests refused by the rate limit.
    rate_limited: u64,
    /// The maximum number of requests within any one second.
    requests_per_second_max: usize,
}

/// How a request ended.
pub(super) enum End {
    Answered(u16),
    Cut,
    Abandoned,
}

/// The requests in flight, and the counters.
pub(super) struct Traffic {
    pub(super) counters: Counters,
    rate: Option<Rate>,
    in_flight: u64,
    /// The arrival times of the last second's requests, with the number of requests at each.
    arrivals: BTreeMap<u64, usize>,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Traffic {
    pub(super) fn new(rate_limit_per_second: Option<NonZeroU32>) -> Self {
        Self {
            counters: Counters::default(),
            rate: rate_limit_per_second.map(Rate::new),
            in_flight: 0,
            arrivals: BTreeMap::new(),
        }
    }

    pub(super) fn begin(&mut self, label: &'static str, now_ns: u64) {
        *self.counters.requests.entry(label).or_default() += 1;
        self.in_flight += 1;
        self.counters.requests_in_flight_max = self.counters.requests_in_flight_max.max(self.in_flight);
        *self.arrivals.entry(now_ns).or_default() += 1;
        self.arrivals = self.arrivals.split_off(&now_ns.saturating_sub(SECOND_NS - 1));
        let in_second = self.arrivals.values().sum();
        self.counters.requests_per_second_max = self.counters.requests_per_second_max.max(in_second);
    }

    pub(super) fn end(&mut self, end: End) {
        self.in_flight -= 1;
        match end {
            End::Answered(status) => *self.counters.answers.entry(status).or_default() += 1,
            End::Cut => self.counters.connections_cut += 1,
            End::Abandoned => self.counters.abandoned += 1,
        }
    }

    /// Admits the request, or returns the nanoseconds until one is admitted.
    pub(super) fn admit(&mut self, now_ns: u64) -> Result<(), u64> {
        let admitted = self.rate.as_mut().map_or(Ok(()), |rate| rate.admit(now_ns));
        self.counters.rate_limited += u64::from(admitted.is_err());
        admitted
    }
}
