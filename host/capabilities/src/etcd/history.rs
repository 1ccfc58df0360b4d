//! The newest changes of the embedded store, and a watch of them: a position, and a signal when there are more.
//!
//! They are in memory only: the watchers run in the same process and list when it starts.

use std::collections::VecDeque;

use tokio::sync::watch;

use super::{Changes, Error, Event, Watch, WatchEnd};
use async_trait::async_trait;

/// How many revisions back a watch can begin; one that falls further behind lists again. etcd keeps all until an
/// operator compacts it. The watchers of this store fall behind only for moments.
const HISTORY_REVISIONS_MAX: usize = 10_000;

/// The size of the history to keep: some 10 transactions of the largest size.
const HISTORY_BYTES_MAX: usize = 16 << 20;

/// The changes of the newest revisions.
#[derive(Debug)]
pub(super) struct History {
    /// The store's revision.
    revision: u64,
    /// Those of all revisions up to this one, without a gap: each revision changes something.
    changes: VecDeque<Changes>,
    bytes: usize,
}

impl History {
    /// Begins after this revision.
    pub(super) fn after(revision: u64) -> Self {
        Self {
            revision,
            changes: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Adds the next revision, and removes the oldest ones above the limits.
    pub(super) fn push(&mut self, changes: Changes) {
        self.revision = changes.revision;
        self.bytes += bytes(&changes);
        self.changes.push_back(changes);
        // Always keep the newest one, so that a watch that is up to date misses nothing.
        while self.changes.len() > HISTORY_REVISIONS_MAX || (self.bytes > HISTORY_BYTES_MAX && self.changes.len() > 1) {
            self.forget();
        }
    }

    /// Removes the revisions up to this one.
    pub(super) fn compact(&mut self, revision: u64) {
        while self.changes.front().is_some_and(|oldest| oldest.revision <= revision) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.bytes -= self.changes.pop_front().as_ref().map_or(0, bytes);
    }

    /// The changes after a revision; `None` if the history does not reach back that far, or if that revision never
    /// existed.
    fn newer(&self, revision: u64) -> Option<impl Iterator<Item = &Changes>> {
        let newer = usize::try_from(self.revision.checked_sub(revision)?).ok()?;
        let older = self.changes.len().checked_sub(newer)?;
        Some(self.changes.iter().skip(older))
    }
}

fn bytes(changes: &Changes) -> usize {
    let bytes = |event: &Event| match event {
        Event::Put(stored) => stored.key.len() + stored.value.len(),
        Event::Deleted(key) => key.len(),
    };
    changes.events.iter().map(bytes).sum()
}

/// A watch of the store's history.
pub(super) struct Cursor {
    pub(super) prefix: Vec<u8>,
    /// Everything up to this revision was reported.
    pub(super) after: u64,
    pub(super) history: watch::Receiver<History>,
}

impl Cursor {
    /// The next revision that changed something under the prefix; `None` if there is none yet. Changes elsewhere do not
    /// leave the watch behind.
    fn look(&mut self) -> Result<Option<Changes>, WatchEnd> {
        let history = self.history.borrow_and_update();
        let after = self.after;
        for Changes { revision, events } in history.newer(after).ok_or(WatchEnd::Compacted { after })? {
            self.after = *revision;
            let events = events.iter().filter(|event| event.key().starts_with(&self.prefix));
            let (revision, events) = (*revision, events.cloned().collect::<Vec<_>>());
            if !events.is_empty() {
                return Ok(Some(Changes { revision, events }));
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl Watch for Cursor {
    async fn next(&mut self) -> Result<Changes, WatchEnd> {
        loop {
            if let Some(changes) = self.look()? {
                return Ok(changes);
            }
            if self.history.changed().await.is_err() {
                let text = "the store is closed".to_owned();
                return Err(WatchEnd::Failed(Error::Unavailable(text)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_goes_by_number_and_by_size_and_the_newest_revision_stays() {
        let changes = |revision, bytes| Changes {
            revision,
            events: vec![Event::Deleted(vec![0; bytes])],
        };
        let reaches = |history: &History, after| {
            let newer = history.newer(after);
            newer.map(|newer| newer.map(|changes| changes.revision).collect::<Vec<u64>>())
        };
        let mut history = History::after(7);
        assert_eq!(reaches(&history, 7), Some(vec![]));
        assert_eq!(reaches(&history, 8), None, "it never existed");
        let newest = 8 + HISTORY_REVISIONS_MAX as u64;
        for revision in 8..=newest {
            history.push(changes(revision, 1));
        }
        assert_eq!(reaches(&history, 7), None);
        assert_eq!(reaches(&history, 8).unwrap().len(), HISTORY_REVISIONS_MAX);
        assert_eq!(reaches(&history, newest - 2), Some(vec![newest - 1, newest]));
        history.push(changes(newest + 1, HISTORY_BYTES_MAX + 1));
        assert_eq!(reaches(&history, newest - 1), None);
        assert_eq!(reaches(&history, newest), Some(vec![newest + 1]));
        history.compact(newest + 1);
        assert_eq!(reaches(&history, newest), None);
        assert_eq!(reaches(&history, newest + 1), Some(vec![]));
        assert_eq!(history.bytes, 0);
    }
}
