//! Instances that wait for their key's next job. Above the limit, the host drops the one that is idle for the
//! longest, and rebuilds it from its recording when its key needs it.

use std::collections::BTreeMap;

use crate::slot::InstanceSlot;

/// The maximum number of idle instances of one guest. The engine's pool has room for these and for those in work.
const IDLE_INSTANCES_MAX: usize = 256;

/// Idle instances by key, and the order in which they became idle.
pub(crate) struct Idle<K> {
    by_key: BTreeMap<K, (u64, InstanceSlot)>,
    order: BTreeMap<u64, K>,
    rests: u64,
}

impl<K> Default for Idle<K> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            order: BTreeMap::new(),
            rests: 0,
        }
    }
}

impl<K: Ord + Clone> Idle<K> {
    /// Keeps an instance. If there are too many, drops the one that is idle for the longest.
    pub(crate) fn rest(&mut self, key: K, slot: InstanceSlot) {
        self.rests += 1;
        self.order.insert(self.rests, key.clone());
        self.by_key.insert(key, (self.rests, slot));
        if self.by_key.len() > IDLE_INSTANCES_MAX
            && let Some((_, longest)) = self.order.pop_first()
        {
            self.let_go(&longest);
        }
    }

    /// The instance of a key, for its next job. `None` if the job must rebuild it.
    pub(crate) fn take(&mut self, key: &K) -> Option<InstanceSlot> {
        let (rest, slot) = self.by_key.remove(key)?;
        self.order.remove(&rest);
        Some(slot)
    }

    /// Drops the instance of a key after syncing its recording to disk.
    pub(crate) fn let_go(&mut self, key: &K) {
        if let Some(mut slot) = self.take(key) {
            slot.sync();
        }
    }

    /// Syncs the recordings to disk if the configuration says so and they are due.
    pub(crate) fn sync_if_due(&mut self) {
        for (_, slot) in self.by_key.values_mut() {
            slot.tick();
        }
    }

    /// Syncs all recordings to disk.
    pub(crate) fn sync(&mut self) {
        for (_, slot) in self.by_key.values_mut() {
            slot.sync();
        }
    }
}
