//! The requests in flight, the rate limit, and the counters of past requests.
//!
//! Pure: time is an argument, and nothing is awaited.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Serialize;
use trueup_base::window::Window;

const SECOND_NS: u64 = 1_000_000_000;

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
    rate_limit_per_second: Option<NonZeroU32>,
    /// In nanoseconds.
    admitted: Window,
}

impl Traffic {
    pub(crate) fn new(rate_limit_per_second: Option<NonZeroU32>) -> Self {
        Self {
            counters: Counters::default(),
            rate_limit_per_second,
            admitted: Window::default(),
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
        let Some(limit) = self.rate_limit_per_second else {
            return Ok(());
        };
        let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
        self.admitted.admit(limit, SECOND_NS, now_ns)
    }

    /// Sets the counters to zero. Requests in flight stay known.
    pub(crate) fn clear(&mut self) {
        self.counters = Counters {
            requests_in_flight: self.counters.requests_in_flight,
            ..Counters::default()
        };
    }
}
