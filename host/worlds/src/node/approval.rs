//! Services that the source no longer shows, and that stay rendered until an operator approves their removal.

use std::path::Path;
use std::sync::Arc;

use trueup_base::clock::SystemClock;
use trueup_capabilities::holdings::Kept;
use trueup_config::Guest;
use trueup_work::lifecycle::active::Active;
use trueup_work::object_counts::ObjectCounts;

use crate::node::guests::service;

/// The part of the processor that approvals need.
pub(super) struct Approval {
    pub(super) active: Arc<Active>,
    held: Option<ObjectCounts>,
}

impl Approval {
    /// Continues from what the last process rendered, if that can be read.
    pub(super) fn new(active: Arc<Active>, state_dir: &Path, guest: &Guest) -> Self {
        let held = ObjectCounts::open(state_dir, service::NAME);
        let held = held.inspect_err(|error| tracing::warn!("which Services were rendered is not known: {error}"));
        let held = held.ok();
        active.quotas.holdings.guard(guest.approve_above, Arc::new(SystemClock));
        let kept = held.as_ref().map_or_else(Kept::default, ObjectCounts::kept);
        active.quotas.holdings.restore(kept);
        let held = held.filter(|_| active.plan.is_none());
        Self { active, held }
    }

    /// Keeps what is rendered for the next process: immediately if `now`, else when it is due.
    pub(super) fn keep(&mut self, now: bool) {
        let Some(held) = &mut self.held else { return };
        if let Err(error) = held.keep(&self.active.quotas.holdings, now) {
            tracing::warn!("which Services are rendered is not kept for the next start: {error}");
        }
    }

    /// One line if Services wait.
    pub(super) fn problem(&self) -> Option<String> {
        let waiting = self.active.quotas.holdings.waiting()?;
        Some(format!(
            "{} are gone from the source: they stay rendered until that is approved, or they are back; type: trueup approve \
             {}, or run it with --once --approve",
            waiting.text("Services"),
            service::NAME
        ))
    }
}

/// Waits until an operator approves what waits. `None` without an `approval`.
pub(super) async fn approved(approval: Option<&Approval>) -> Option<()> {
    approval?.active.approved.notified().await;
    Some(())
}
