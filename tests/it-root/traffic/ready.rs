//! When which pod was an endpoint of which Service.
//!
//! A pod may get connections from the start of the write of its manifest until every node has rendered its removal. In
//! between each node changes at its own time.

use std::collections::BTreeMap;

use super::dialing::Attempt;
use super::services::Service;
use super::topology::Pod;

#[derive(Default)]
pub(crate) struct Ready {
    /// By Service and name of the pod, in order.
    spans: BTreeMap<(Service, String), Vec<Span>>,
}

/// In microseconds since the machine's start. Without an end, the pod is still an endpoint.
struct Span {
    begins_us: u64,
    ends_us: Option<u64>,
}

impl Ready {
    pub(crate) fn begins(&mut self, service: Service, pod: Pod, begins_us: u64) {
        let spans = self.spans.entry((service, pod.name())).or_default();
        spans.push(Span {
            begins_us,
            ends_us: None,
        });
    }

    pub(crate) fn ends(&mut self, service: Service, pod: Pod, at_us: u64) {
        let spans = self.spans.get_mut(&(service, pod.name())).unwrap();
        let last = spans.last_mut().unwrap();
        assert_eq!(last.ends_us.replace(at_us), None);
    }

    /// Whether a new connection was correct: the pod that answered could be an endpoint at that time.
    pub(crate) fn allows(&self, service: Service, attempt: &Attempt) -> bool {
        let Ok(seen) = &attempt.result else { return false };
        let spans = self.spans.get(&(service, seen.pod.clone()));
        let mut spans = spans.into_iter().flatten();
        spans.any(|span| {
            span.begins_us <= attempt.ended_us && span.ends_us.is_none_or(|ends_us| attempt.begun_us <= ends_us)
        })
    }
}
