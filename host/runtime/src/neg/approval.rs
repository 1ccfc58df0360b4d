//! Keys that the source shows no more, and whose endpoints stay attached until that is approved.
//!
//! Only keys that go count: endpoints of a key that stays come and go with its pods.

use super::Negs;
use crate::guests::neg::adapter::{Key, Wish};

impl Negs<'_> {
    /// Whether the endpoints of a key that is gone may go now.
    ///
    /// # Errors
    /// One line: they wait for an approval.
    pub(super) fn may_go(&self, key: &Key) -> Result<(), String> {
        let (holdings, key) = (&self.setup.active.quotas.holdings, key.to_string());
        holdings.admit(&key, holdings.held(&key))
    }

    /// A key is as its wish says, or gone: counts its endpoints.
    pub(super) fn note_held(&self, key: &Key, gone: bool) {
        let endpoints = match self.targets.wish(key) {
            _ if gone => 0,
            Some(Ok(Wish { target, .. })) => target.iter().map(|group| group.endpoints.len() as u64).sum(),
            // Its wish went or broke: its next turn tells. A key that goes loses its endpoints over several turns, and
            // an approval is for all of them.
            Some(Err(_)) | None => return,
        };
        let (holdings, key) = (&self.setup.active.quotas.holdings, key.to_string());
        if gone {
            holdings.destroyed(&key, holdings.held(&key));
        }
        holdings.hold(&key, endpoints);
        holdings.done(&key);
    }
}
