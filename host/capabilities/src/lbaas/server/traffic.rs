//! The requests in flight, and the numbers of past ones: the rate limit, overlapping taggings, counters.
//!
//! Pure: time is an argument, and there is no await.

use std::{collections::BTreeMap, num::NonZeroU32};

use axum::http::StatusCode;
use serde::Serialize;

use crate::sim::rate::Rate;

/// The counts since the start, or since the counters were last cleared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counters {
    /// By method and path, without identifiers and tags: `GET /api/LBaaS/v1/bind.json/{id}`.
    requests: BTreeMap<String, u64>,
    /// By status.
    answers: BTreeMap<u16, u64>,
    /// Connections closed by a fault or at the end.
    connections_cut: u64,
    /// Requests whose client disconnected before the answer.
    abandoned: u64,
    requests_in_flight_max: u64,
    /// Requests with a 429 answer from the rate limit.
    rate_limited: u64,
    /// Taggings that began during that of another resource.
    overlapping_taggings: u64,
    /// Those of them that got a 200 answer but had no effect.
    lost_taggings: u64,
}

/// How a request ended.
pub(super) enum End {
    Answered(StatusCode),
    Cut,
    Abandoned,
}

/// The requests in flight, and the counters.
pub(super) struct Traffic {
    pub(super) counters: Counters,
    rate: Option<Rate>,
    in_flight: u64,
    taggings: BTreeMap<u64, Tagging>,
    taggings_begun: u64,
}

struct Tagging {
    resource: String,
    is_lost: bool,
}

impl Traffic {
    pub(super) fn new(rate_limit_per_second: Option<NonZeroU32>) -> Self {
        Self {
            counters: Counters::default(),
            rate: rate_limit_per_second.map(Rate::new),
            in_flight: 0,
            taggings: BTreeMap::new(),
            taggings_begun: 0,
        }
    }

    pub(super) fn begin(&mut self, what: String) {
        *self.counters.requests.entry(what).or_default() += 1;
        self.in_flight += 1;
        self.counters.requests_in_flight_max = self.counters.requests_in_flight_max.max(self.in_flight);
    }

    pub(super) fn end(&mut self, end: End) {
        self.in_flight -= 1;
        match end {
            End::Answered(status) => *self.counters.answers.entry(status.as_u16()).or_default() += 1,
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

    /// Records a tagging, which ends by the returned number. Of several overlapping ones, the first is not lost.
    pub(super) fn begin_tagging(&mut self, resource: &str, lose_overlapping: bool) -> (u64, bool) {
        let number = self.taggings_begun;
        self.taggings_begun += 1;
        let mut others = self
            .taggings
            .values()
            .filter(|other| other.resource != resource)
            .peekable();
        let overlaps = others.peek().is_some();
        let is_lost = lose_overlapping && others.any(|other| !other.is_lost);
        self.counters.overlapping_taggings += u64::from(overlaps);
        self.counters.lost_taggings += u64::from(is_lost);
        self.taggings.insert(
            number,
            Tagging {
                resource: resource.to_owned(),
                is_lost,
            },
        );
        (number, is_lost)
    }

    pub(super) fn end_tagging(&mut self, number: u64) {
        self.taggings.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_taggings_that_overlap_the_first_one_stays() {
        let mut traffic = Traffic::new(None);
        let (first, first_lost) = traffic.begin_tagging("a", true);
        let (_, second_lost) = traffic.begin_tagging("b", true);
        let (_, same_resource_lost) = traffic.begin_tagging("a", true);
        assert_eq!((first_lost, second_lost, same_resource_lost), (false, true, false));
        traffic.end_tagging(first);

        let mut traffic = Traffic::new(None);
        let (first, _) = traffic.begin_tagging("a", true);
        traffic.end_tagging(first);
        assert!(!traffic.begin_tagging("b", true).1, "they do not overlap");
        assert_eq!(traffic.counters.overlapping_taggings, 0);
        assert!(!traffic.begin_tagging("c", false).1, "losing is switched off");
        assert_eq!(
            (traffic.counters.overlapping_taggings, traffic.counters.lost_taggings),
            (1, 0)
        );
    }
}
