//! Takes in the source, and shows what an operator should know of it.

use std::sync::Arc;

use trueup_controller::Outcome;
use trueup_sources::Batch;
use trueup_work::event::Event;
use trueup_work::input::nothing_there;

use super::{Approval, Serving, Work};
use crate::node::guests::service::adapter::Changes;

/// The maximum number of changes of one look at the source that go one by one. Above it, the processor gets a full
/// resync: renderers take that in less time, and whatever comes next waits less.
const TOLD_SINGLY_MAX: usize = 32;

/// With many services, one change per this many services goes by itself. For nft (docs/nftables.md), a full resync
/// costs as much as a hundred changes with 10,000 services of 2 endpoints, and as four times that with 10 endpoints.
const SERVICES_A_CHANGE: usize = 32;

impl Serving {
    /// Takes in what the source says.
    pub(super) async fn take_in(&mut self, batch: Batch, is_asked_to_end: impl Fn() -> bool) {
        let was_complete = self.cluster.is_complete();
        let changed = self.cluster.take_in(&batch);
        if let Some(approval) = &mut self.approval {
            approval.keep(false);
        }
        for change in &batch.changes {
            self.progress.objects.apply(change);
        }
        self.look(&batch, &changed);
        self.report_notes(&changed);
        if !self.cluster.is_complete() {
            return;
        }
        self.feed(changed.nodes).await;
        if self.processor.is_none() {
            return;
        }
        if !was_complete {
            self.enqueue_resync();
            // From now on it repeats by itself.
            self.enqueue_later(Work::Again, Outcome::Success);
        }
        let few = TOLD_SINGLY_MAX.max(self.rendering.services().await / SERVICES_A_CHANGE);
        // If a renderer refuses one call, it may refuse only that, and would then refuse a full resync as a whole.
        if changed.events.len() > few && self.progress.is_synced && !self.progress.is_pending {
            self.progress.is_synced = false;
            self.enqueue(Work::Service);
            return;
        }
        for event in changed.events {
            if is_asked_to_end() {
                // The next process sends a full resync.
                return;
            }
            if self.progress.is_synced {
                self.update(event).await;
            } else {
                // The resync to come includes it.
                self.enqueue_resync();
            }
        }
    }

    fn look(&mut self, batch: &Batch, changed: &Changes) {
        let cluster = &self.cluster;
        let own = cluster.problems().map(str::to_owned);
        let missing = changed.is_empty.then(|| nothing_there(self.is_cluster));
        let waits = self.approval.as_ref().and_then(Approval::problem);
        let missing: Vec<String> = missing.into_iter().chain(waits).collect();
        let new = missing.iter().filter(|line| !self.progress.problems.contains(line));
        let new: Vec<String> = new.cloned().collect();
        let own: Vec<String> = missing.into_iter().chain(own).collect();
        let notes = cluster.notes().filter(|note| own.iter().all(|own| own != note));
        let note_count = cluster.notes().len().saturating_sub(cluster.problems().count());
        self.host_status.on_node(&own, notes, note_count);
        self.progress.problems = batch.problems.iter().map(ToString::to_string).collect();
        let in_the_source = self.progress.problems.len();
        self.progress.problems.extend(own);
        let report = |problem| drop(self.events.send(Event::Problem(problem)));
        new.into_iter().for_each(report);
        self.progress.last = Batch {
            problems: batch.problems.clone(),
            complete: batch.complete,
            unreadable: Arc::clone(&batch.unreadable),
            ..Batch::default()
        };
        if self.source_is_reported {
            return;
        }
        batch.new_problems.iter().map(ToString::to_string).for_each(report);
        let problems = self.progress.problems.get(..in_the_source).unwrap_or_default();
        let counts = self.progress.objects.counts();
        self.host_status
            .looked(&counts, batch.changes.len(), batch.complete, problems);
    }
}
