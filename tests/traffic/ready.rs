//! When which pod was an endpoint of which Service.
//!
//! A pod may get connections from when its manifest begins to say so until every node has rendered that it does not:
//! between the two each node changes when it comes to it.

use std::collections::BTreeMap;

use super::dialing::Attempt;
use super::services::Service;
use super::topology::Pod;

#[derive(Default)]
pub(crate) struct Ready {
    /// By Service and name of the pod, in order. Without an end it still is.
    spans: BTreeMap<(Service, String), Vec<(u64, Option<u64>)>>,
}

impl Ready {
    pub(crate) fn begins(&mut self, service: Service, pod: Pod, at_us: u64) {
        self.spans.entry((service, pod.name())).or_default().push((at_us, None));
    }

    pub(crate) fn ends(&mut self, service: Service, pod: Pod, at_us: u64) {
        let spans = self.spans.get_mut(&(service, pod.name())).unwrap();
        let (_, end) = spans.last_mut().unwrap();
        assert_eq!(end.replace(at_us), None);
    }

    /// Whether a new connection went as it may: a pod answered that could be an endpoint while it was made.
    pub(crate) fn allows(&self, service: Service, attempt: &Attempt) -> bool {
        let Ok(seen) = &attempt.result else { return false };
        let spans = self.spans.get(&(service, seen.pod.clone()));
        spans
            .into_iter()
            .flatten()
            .any(|(begins, ends)| *begins <= attempt.ended_us && ends.is_none_or(|ends| attempt.begun_us <= ends))
    }
}
