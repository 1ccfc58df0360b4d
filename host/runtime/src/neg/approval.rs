//! Keys that the source shows no more, and whose endpoints stay attached until that is approved.
//!
//! Only keys that go count: endpoints of a key that stays come and go with its pods.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use trueup_capabilities::quota::Quotas;

use super::Negs;
use crate::config::Guest;
use crate::event::Event;
use crate::guests::neg::NAME;
use crate::guests::neg::adapter::{Key, Wish};
use crate::work::held::Held;

/// How many endpoints each key has, in memory and on disk, and how many may go.
pub(super) struct Approval {
    held: Held,
    quotas: Arc<Quotas>,
}

impl Approval {
    /// Goes on from what the last process kept.
    ///
    /// # Errors
    /// Where that can't be read, with the file's name.
    pub(super) fn new(quotas: Arc<Quotas>, state_dir: &Path, guest: &Guest) -> io::Result<Self> {
        let held = Held::open(state_dir, NAME)?;
        quotas.holdings.guard(guest.approve_above);
        quotas.holdings.restore(held.kept());
        Ok(Self { held, quotas })
    }

    /// A look at the source changed these keys, of which those that are gone lose all they have. Answers the keys that
    /// waited and need not any more.
    pub(super) fn expect(
        &self,
        keys: &BTreeSet<Key>,
        is_gone: impl Fn(&Key) -> bool,
        is_idle: bool,
    ) -> BTreeSet<String> {
        if is_idle {
            self.quotas.holdings.begin_round();
        }
        for key in keys {
            let text = key.to_string();
            let going = if is_gone(key) {
                self.quotas.holdings.held(&text)
            } else {
                0
            };
            self.quotas.holdings.expect(&text, going);
        }
        self.quotas.holdings.freed()
    }

    /// Whether all that a key has may go now.
    ///
    /// # Errors
    /// One line: it waits for an approval.
    fn admit(&self, key: &str) -> Result<(), String> {
        self.quotas.holdings.admit(key, self.quotas.holdings.held(key))
    }

    /// A key is as it should be, with so many endpoints. None: it is gone, and all it had went.
    fn came_true(&mut self, key: &str, endpoints: Option<u64>) {
        let holdings = &self.quotas.holdings;
        if endpoints.is_none() {
            holdings.destroyed(key, holdings.held(key));
        }
        holdings.hold(key, endpoints.unwrap_or_default());
        holdings.done(key);
        self.keep(false);
    }

    /// Keeps the counts for the next process: `now`, or when it is time.
    pub(super) fn keep(&mut self, now: bool) {
        if let Err(error) = self.held.keep(&self.quotas.holdings, now) {
            tracing::warn!("how many endpoints each key has is not kept for the next start: {error}");
        }
    }
}

impl<T: FnMut(Event)> Negs<'_, T> {
    /// Whether the endpoints of a key that is gone may go now. Where they may not, the key fails with the reason, and
    /// comes again when less is to go or when it is approved.
    pub(super) fn may_go(&mut self, key: &Key) -> bool {
        let Err(why) = self.approval.admit(&key.to_string()) else {
            return true;
        };
        let name = self.shared.active.instances().name;
        let once = if self.once {
            ", or run it with --once --approve"
        } else {
            ""
        };
        self.approval.keep(true);
        self.refuse(key.clone(), format!("{why} {name}{once}"));
        false
    }

    /// What waits was approved.
    pub(super) fn try_waiting(&mut self) {
        let failed = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry.standing, Some(Err(_))));
        let keys: Vec<Key> = failed.map(|(key, _)| key.clone()).collect();
        self.try_again(&keys);
    }

    pub(super) fn try_again(&mut self, keys: &[Key]) {
        for key in keys {
            self.entry(key).inbox.sync = true;
            self.changed(key);
        }
    }

    /// A key is as its wish says, or gone.
    pub(super) fn note_held(&mut self, key: &Key, gone: bool) {
        let endpoints = match self.targets.wish(key) {
            _ if gone => None,
            Some(Ok(Wish { target, .. })) => Some(target.iter().map(|group| group.endpoints.len() as u64).sum()),
            // Its wish went or broke meanwhile: its next turn tells.
            Some(Err(_)) | None => return,
        };
        self.approval.came_true(&key.to_string(), endpoints);
    }
}
