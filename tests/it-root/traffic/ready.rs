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
    /// By Service, the times from the write of a change until every node had rendered it.
    changes: BTreeMap<Service, Vec<(u64, u64)>>,
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

    pub(crate) fn changed(&mut self, service: Service, begun_us: u64, ended_us: u64) {
        self.changes.entry(service).or_default().push((begun_us, ended_us));
    }

    /// Whether the kernel may have refused this connection: a change of its Service was under way.
    ///
    /// A packet reads the kernel's generation of rules twice: when it enters a base chain, and when it looks an element
    /// up. If a transaction is committed in between, the old rule finds no element, and the packet goes on without an
    /// endpoint. On Linux 6.18, `nft` alone shows this: of 20,000 connections a second during 8,000 changes a second of
    /// one `vmap`, between 1 of 200 and 1 of 500 was refused.
    pub(crate) fn may_be_refused(&self, service: Service, attempt: &Attempt) -> bool {
        let changes = self.changes.get(&service).into_iter().flatten();
        let mut changes = changes.copied();
        let is_refused = matches!(&attempt.result, Err(error) if error.contains("Connection refused"));
        is_refused && changes.any(|(begun_us, ended_us)| begun_us <= attempt.ended_us && attempt.begun_us <= ended_us)
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
