//! Keys whose objects are destroyed only after an approval: how much a change of the source is to destroy, and when
//! these keys are tried again.

use std::collections::BTreeSet;

use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::holdings::Holdings;

use super::{Keyed, Reconciler};
use crate::decisions::Cause;
use crate::event::Event;
use crate::lifecycle::failure::{Blame, End};

impl<W: Reconciler, T: FnMut(Event)> Keyed<W, T> {
    pub(super) fn holdings(&self) -> &Holdings {
        &self.shared.active.quotas.holdings
    }

    /// Before anything is destroyed: how much these keys are to lose, so that either all of it waits or nothing.
    pub(super) fn expect(&mut self, affected: &BTreeSet<W::Key>) {
        let holdings = self.holdings();
        for key in affected {
            let text = key.to_string();
            if !self.world.is_desired(key) && self.world.leaves(key, 1) == 0 {
                holdings.foresee(&text, holdings.held_by_gone(&text));
            } else {
                let has = holdings.held(&text);
                let going = has.saturating_sub(self.world.leaves(key, has));
                match self.world.loses_no_others(key) {
                    true => holdings.foresee(&text, going),
                    false => holdings.guess(&text, going),
                }
            }
        }
        let freed = holdings.freed();
        for key in freed.iter().filter_map(|key| key.parse().ok()) {
            self.queue_anew(&key);
        }
    }

    /// Forgets how many objects the keys have that are neither in the source nor to be removed.
    pub(super) fn forget_unknown_counts(&self) {
        let keys = self.world.keys();
        let known: BTreeSet<String> = keys.iter().chain(&self.held).map(ToString::to_string).collect();
        let holdings = self.holdings();
        for key in holdings.without(|key| known.contains(key)) {
            holdings.forget(&key);
        }
    }

    /// The operator approved what waits.
    pub(super) fn try_waiting(&mut self) {
        let failed = self.last_results.iter().filter(|(_, result)| result.is_err());
        let keys: Vec<W::Key> = failed.map(|(key, _)| key.clone()).collect();
        for key in &keys {
            let cause = Cause::Resync { by_operator: true };
            self.pending.because(key, SystemClock.now_ms(), cause);
            self.queue_anew(key);
        }
        self.keep_held(true);
    }

    /// The end of a turn. If it was not allowed to destroy, that is its error, whatever the guest reported.
    pub(super) fn waits(&self, key: &W::Key, mut end: End) -> End {
        if let Err(failure) = &mut end
            && failure.blame == Blame::Host
            && let Some(why) = self.holdings().refusal(&key.to_string())
        {
            failure.error = self.with_hint(&why);
        }
        end
    }

    /// Why a key waits for an approval, with what to type next.
    pub(super) fn with_hint(&self, why: &str) -> String {
        let name = self.shared.active.instances().name;
        let once = if self.once {
            ", or run it with --once --approve"
        } else {
            ""
        };
        format!("{why} {name}{once}")
    }

    /// Keeps for the next process how many objects each key has: `now`, or when it is time.
    pub(super) fn keep_held(&mut self, now: bool) {
        if let Err(error) = self.object_counts.keep(&self.shared.active.quotas.holdings, now) {
            tracing::warn!(
                "how many {} has is not kept for the next start: {error}",
                W::RULES.counted
            );
        }
    }
}
