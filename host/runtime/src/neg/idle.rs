//! Instances that wait for their key's next job. So many are kept; the one that rested longest is let go for another, and
//! rebuilt from its recording when there is something for it.

use std::collections::BTreeMap;

use super::job::Live;
use crate::guests::neg::adapter::Key;

/// As many as of Services: the engine's pool has room for both, and for those that work.
const IDLE_INSTANCES_MAX: usize = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Idle {
    by_key: BTreeMap<Key, (u64, Live)>,
    order: BTreeMap<u64, Key>,
    rests: u64,
}

impl Idle {
    /// Keeps an instance, in place of the one that rested longest where there are too many.
    pub(super) fn rest(&mut self, key: Key, live: Live) {
        self.rests += 1;
        self.order.insert(self.rests, key.clone());
        self.by_key.insert(key, (self.rests, live));
        if self.by_key.len() > IDLE_INSTANCES_MAX
            && let Some((_, longest)) = self.order.pop_first()
        {
            self.let_go(&longest);
        }
    }

    /// The instance of a key, for its next job; none: it is to be rebuilt.
    pub(super) fn take(&mut self, key: &Key) -> Option<Live> {
        let (rest, live) = self.by_key.remove(key)?;
        self.order.remove(&rest);
        Some(live)
    }

    /// Ends the instance of a key, with what it recorded on the disk.
    pub(super) fn let_go(&mut self, key: &Key) {
        if let Some(mut live) = self.take(key) {
            live.sync();
        }
    }

    /// Brings what was recorded to the disk, where the configuration says so and it is time.
    pub(super) fn sync_if_due(&mut self) {
        for (key, (_, live)) in &mut self.by_key {
            if let Err(error) = live.sync_if_due() {
                tracing::warn!(instance = %key, "{error}");
            }
        }
    }

    /// Brings all that was recorded to the disk.
    pub(super) fn sync(&mut self) {
        for (_, live) in self.by_key.values_mut() {
            live.sync();
        }
    }
}
