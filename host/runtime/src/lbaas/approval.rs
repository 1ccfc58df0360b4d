//! Keys whose objects are destroyed only after an approval: how much a change of the source is to destroy, and when
//! these keys are tried again.

use std::collections::BTreeSet;

use super::{Services, key_of};
use crate::event::Event;
use crate::guests::lbaas::adapter::{self, Key};
use crate::lifecycle::end::End;

impl<T: FnMut(Event)> Services<'_, T> {
    /// Before anything is destroyed: how much these keys are to lose, so that either all of it waits or nothing.
    pub(super) fn expect(&mut self, affected: &BTreeSet<Key>) {
        let holdings = &self.setup.quotas.holdings;
        if self.jobs.is_empty() {
            holdings.begin_round();
        }
        for key in affected {
            let text = key.to_string();
            let held = holdings.held(&text);
            let left = match self.wishes.wish(key) {
                Some(Ok(desired)) => adapter::object_count(&desired),
                None if self.wishes.is_gone(key) => 0,
                // The count does not change.
                Some(Err(_)) | None => held,
            };
            holdings.expect(&text, held.saturating_sub(left));
        }
        let freed = holdings.freed();
        self.try_again(freed);
    }

    /// The operator approved what waits.
    pub(super) fn try_waiting(&mut self) {
        let failed = self.standing.iter().filter(|(_, standing)| standing.is_err());
        let keys = failed.map(|(key, _)| key.to_string()).collect();
        self.try_again(keys);
    }

    fn try_again(&mut self, keys: BTreeSet<String>) {
        let now_ms = self.now_ms();
        for key in keys.iter().filter_map(key_of) {
            if let Err(error) = self.controller.changed(&key, now_ms) {
                tracing::error!(%key, "{error}");
            }
        }
    }

    /// The end of a job. If it was not allowed to destroy, that is its error, whatever the guest reported.
    pub(super) fn waits(&self, key: &Key, end: End) -> End {
        match (end, self.setup.quotas.holdings.refusal(&key.to_string())) {
            (End::Failed { retry_after_ms, .. }, Some(why)) => {
                let name = self.shared.active.instances().name;
                let once = if self.once {
                    ", or run it with --once --approve"
                } else {
                    ""
                };
                let error = format!("{why} {name}{once}");
                End::Failed { error, retry_after_ms }
            }
            (end, _) => end,
        }
    }

    /// Keeps for the next process how many objects each key has.
    pub(super) fn keep_held(&mut self, now: bool) {
        if let Err(error) = self.held_objects.keep(&self.setup.quotas.holdings, now) {
            tracing::warn!("how many objects each Service has is not kept for the next start: {error}");
        }
    }
}
