//! The requests in flight, the rate limit, and the counters of past requests.
//!
//! Pure: time is an argument, and nothing is awaited.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Serialize;

use super::rate::Rate;

/// Counted since the start, or since the counters were last cleared.
#[derive(Default, Serialize)]
pub(crate) struct Counters {
    /// By what was asked, identifiers left out: `GET /api/LBaaS/v1/bind.json/{id}`, `networkEndpointGroups.get`.
    requests: BTreeMap<String, u64>,
    requests_in_flight: u64,
    requests_in_flight_max: u64,
}

/// The requests in flight, and the counters.
pub(crate) struct Traffic {
    pub(crate) counters: Counters,
    rate: Option<Rate>,
}

impl Traffic {
    pub(crate) fn new(rate_limit_per_second: Option<NonZeroU32>) -> Self {
        Self {
            counters: Counters::default(),
            rate: rate_limit_per_second.map(Rate::new),
        }
    }

    pub(crate) fn begin(&mut self, label: String) {
        let counters = &mut self.counters;
        *counters.requests.entry(label).or_default() += 1;
        counters.requests_in_flight += 1;
        counters.requests_in_flight_max = counters.requests_in_flight_max.max(counters.requests_in_flight);
    }

    pub(crate) fn end(&mut self) {
        self.counters.requests_in_flight -= 1;
    }

    /// Admits the request. An error is the number of nanoseconds until the limit admits one.
    pub(crate) fn admit(&mut self, now_ns: u64) -> Result<(), u64> {
        self.rate.as_mut().map_or(Ok(()), |rate| rate.admit(now_ns))
    }

    /// Sets the counters to zero. Requests in flight stay known.
    pub(crate) fn clear(&mut self) {
        self.counters = Counters {
            requests_in_flight: self.counters.requests_in_flight,
            ..Counters::default()
        };
    }
}
