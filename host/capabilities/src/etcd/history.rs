//! A watch on a store that keeps its own history: a position in the history, and a signal when it grows.

use tokio::sync::watch;

use super::api::{Watch, WatchEnd};
use super::embedded::Embedded;
use super::stored::Changes;
use crate::bindings::etcd::kv::Error;
use async_trait::async_trait;

/// How many revisions back a watch can begin; one that falls further behind lists again. etcd keeps all until an
/// operator compacts it. The watchers of these stores run in the same process and fall behind only for moments.
pub const HISTORY_REVISIONS_MAX: u64 = 10_000;

/// The size of the history to keep: some 40 transactions of the largest size.
pub const HISTORY_BYTES_MAX: u64 = 64 << 20;

/// The result of a lookup in the history.
pub(super) enum Look {
    /// The first revision with a change.
    Changes(Changes),
    /// Nothing up to this revision.
    NothingUpTo(u64),
}

/// A watch of the store's own history.
pub(super) struct Cursor {
    store: Embedded,
    prefix: Vec<u8>,
    after: u64,
    /// Holds the store's revision, and changes with it.
    revisions: watch::Receiver<u64>,
}

impl Cursor {
    pub(super) fn new(store: Embedded, prefix: &str, after: u64, revisions: watch::Receiver<u64>) -> Self {
        Self {
            store,
            prefix: prefix.as_bytes().to_vec(),
            after,
            revisions,
        }
    }
}

#[async_trait]
impl Watch for Cursor {
    async fn next(&mut self) -> Result<Changes, WatchEnd> {
        loop {
            // Do this before the lookup, so that later changes wake the wait below.
            self.revisions.borrow_and_update();
            match self.store.look(&self.prefix, self.after).await? {
                Look::Changes(changes) => {
                    self.after = changes.revision;
                    return Ok(changes);
                }
                // Changes elsewhere must not leave this watch behind.
                Look::NothingUpTo(revision) => self.after = self.after.max(revision),
            }
            if self.revisions.changed().await.is_err() {
                let text = "the store is closed".to_owned();
                return Err(WatchEnd::Failed(Error::Unavailable(text)));
            }
        }
    }
}
