//! The controller through its public API: single promises in `behaviour`, any order of calls in `promises`.

mod behaviour;
mod promises;

use crate::Controller;

impl<K: Ord + Clone> Controller<K> {
    /// The number of running keys.
    fn running(&self) -> usize {
        self.running
    }

    /// The number of keys that are ready or wait for a retry; resyncs do not count.
    fn waiting(&self) -> usize {
        self.waiting
    }

    /// The number of known keys.
    fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is known.
    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// When each queued key may run, in the order of the keys.
    fn due_ms(&self) -> Vec<u64> {
        let mut queued: Vec<_> = self.queue.iter().map(|((due_ms, _), key)| (key, *due_ms)).collect();
        queued.sort();
        queued.into_iter().map(|(_, due_ms)| due_ms).collect()
    }
}
