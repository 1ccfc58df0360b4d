//! Instances that wait for their key's next job. Above the limit, the host drops the one that is idle for the
//! longest, and rebuilds it from its recording when its key needs it.

use std::collections::BTreeMap;

use super::job::Live;
use crate::guests::neg::adapter::Key;

/// The same limit as for Services. The engine's pool has room for both, and for the working instances.
const IDLE_INSTANCES_MAX: usize = 256;

/// Idle instances by key, and the order in which they became idle.
#[derive(Default)]
pub(super) struct Idle {
    by_key: BTreeMap<Key, (u64, Live)>,
    order: BTreeMap<u64, Key>,
    rests: u64,
}

impl Idle {
    /// Keeps an instance. If there are too many, drops the one that is idle for the longest.
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

    /// The instance of a key, for its next job. `None` if the job must rebuild it.
    pub(super) fn take(&mut self, key: &Key) -> Option<Live> {
        let (rest, live) = self.by_key.remove(key)?;
        self.order.remove(&rest);
        Some(live)
    }

    /// Drops the instance of a key after syncing its recording to disk.
    pub(super) fn let_go(&mut self, key: &Key) {
        if let Some(mut live) = self.take(key) {
            live.sync();
        }
    }

    /// Syncs the recordings to disk if the configuration says so and they are due.
    pub(super) fn sync_if_due(&mut self) {
        for (key, (_, live)) in &mut self.by_key {
            if let Err(error) = live.sync_if_due() {
                tracing::warn!(instance = %key, "{error}");
            }
        }
    }

    /// Syncs all recordings to disk.
    pub(super) fn sync(&mut self) {
        for (_, live) in self.by_key.values_mut() {
            live.sync();
        }
    }
}
