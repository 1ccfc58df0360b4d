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
    /// By status.
    answers: BTreeMap<u16, u64>,
    /// Connections that a fault or the server's end closed.
    connections_cut: u64,
    /// Requests whose client disconnected before the answer.
    abandoned: u64,
    requests_in_flight_max: u64,
    /// Requests that the rate limit refused.
    rate_limited: u64,
}

/// How a request ended.
pub(crate) enum End {
    Answered(u16),
    Cut,
    Abandoned,
}

/// The requests in flight, and the counters.
pub(crate) struct Traffic {
    pub(crate) counters: Counters,
    rate: Option<Rate>,
    in_flight: u64,
}

impl Traffic {
    pub(crate) fn new(rate_limit_per_second: Option<NonZeroU32>) -> Self {
        Self {
            counters: Counters::default(),
            rate: rate_limit_per_second.map(Rate::new),
            in_flight: 0,
        }
    }

    pub(crate) fn begin(&mut self, label: String) {
        *self.counters.requests.entry(label).or_default() += 1;
        self.in_flight += 1;
        self.counters.requests_in_flight_max = self.counters.requests_in_flight_max.max(self.in_flight);
    }

    pub(crate) fn end(&mut self, end: End) {
        self.in_flight -= 1;
        match end {
            End::Answered(status) => *self.counters.answers.entry(status).or_default() += 1,
            End::Cut => self.counters.connections_cut += 1,
            End::Abandoned => self.counters.abandoned += 1,
        }
    }

    /// Admits the request. An error is the number of nanoseconds until the limit admits one.
    pub(crate) fn admit(&mut self, now_ns: u64) -> Result<(), u64> {
        let admitted = self.rate.as_mut().map_or(Ok(()), |rate| rate.admit(now_ns));
        self.counters.rate_limited += u64::from(admitted.is_err());
        admitted
    }

    /// Sets the counters to zero.
    pub(crate) fn clear(&mut self) {
        self.counters = Counters::default();
    }
}
