//! Keys that the source shows no more, and whose endpoints stay attached until that is approved.
//!
//! Only keys that go count: endpoints of a key that stays come and go with its pods.

use super::Negs;
use crate::neg::adapter::Key;

impl Negs<'_> {
    /// Whether the endpoints of a key that is gone may go now.
    ///
    /// # Errors
    /// One line: they wait for an approval.
    pub(super) fn may_go(&self, key: &Key) -> Result<(), String> {
        self.setup.keyed.active.quotas.holdings.admit_all(&key.to_string())
    }

    /// A key is in its desired state, or gone: counts its endpoints.
    pub(super) fn note_held(&self, key: &Key, gone: bool) {
        let (holdings, text) = (&self.setup.keyed.active.quotas.holdings, key.to_string());
        match self.targets.desired(key) {
            _ if gone => holdings.emptied(&text),
            Some(Ok(desired)) => holdings.settled(&text, desired.endpoints()),
            // Its desired state went or became invalid: its next turn counts them. A key that goes loses its endpoints
            // over several turns, and an approval is for all of them.
            Some(Err(_)) | None => {}
        }
    }
}
