//! Yields a listing and then the changes after it, as long as the caller asks.
//!
//! Has no timing: if a listing fails, the caller decides when to repeat it.
//!
//! ```text
//! next -> Listed -> Changed -> Changed -> (history gone) -> Listed -> ...
//! ```

use std::sync::Arc;

use super::api::{Api, Watch, WatchEnd};
use super::stored::{Changes, Listing};
use crate::bindings::etcd::kv::Error;

/// Follows everything under one prefix.
pub struct Follow {
    api: Arc<dyn Api>,
    prefix: String,
    /// `None` if a listing comes next.
    watch: Option<Box<dyn Watch>>,
}

/// The next item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// Everything under the prefix. Replaces all earlier items.
    Listed(Listing),
    /// The changes since then.
    Changed(Changes),
}

impl Follow {
    /// Follows `prefix`, beginning with a listing.
    pub fn new(api: Arc<dyn Api>, prefix: String) -> Self {
        Self {
            api,
            prefix,
            watch: None,
        }
    }

    /// Makes a listing come next.
    pub fn list_again(&mut self) {
        self.watch = None;
    }

    /// Waits for the next item. Cancel-safe: dropping it loses nothing.
    ///
    /// # Errors
    /// If the listing fails, or the store allows no watch. The next call lists again.
    pub async fn next(&mut self) -> Result<Followed, Error> {
        if let Some(watch) = &mut self.watch {
            let ended = match watch.next().await {
                Ok(changes) => return Ok(Followed::Changed(changes)),
                Err(ended) => ended,
            };
            self.watch = None;
            match ended {
                // The caller knows already that changes are lost; the current state is not.
                WatchEnd::Compacted { .. } => {}
                WatchEnd::Failed(error) => return Err(error),
            }
        }
        let listing = self.api.listing(&self.prefix).await?;
        self.watch = Some(self.api.watch(&self.prefix, listing.revision));
        Ok(Followed::Listed(listing))
    }
}

#[cfg(test)]
mod tests {
    use super::super::embedded::Embedded;
    use super::*;

    fn names(listing: &Listing) -> Vec<&[u8]> {
        listing.entries.iter().map(|stored| stored.key.as_slice()).collect()
    }

    #[tokio::test]
    async fn a_listing_then_each_revision_and_a_listing_again_where_history_is_gone() {
        let store = Embedded::in_memory().unwrap();
        store.put_bytes(b"/a/1", b"x").await.unwrap();
        let mut follow = Follow::new(Arc::new(store.clone()), "/a/".to_owned());
        let Followed::Listed(listing) = follow.next().await.unwrap() else {
            panic!("a listing is first");
        };
        assert_eq!((listing.revision, names(&listing)), (2, vec![b"/a/1".as_slice()]));
        store.put_bytes(b"/b", b"elsewhere").await.unwrap();
        store.put_bytes(b"/a/2", b"y").await.unwrap();
        let Followed::Changed(changes) = follow.next().await.unwrap() else {
            panic!("then a change");
        };
        assert_eq!(changes.revision, 4);
        let revision = store.put_bytes(b"/a/3", b"z").await.unwrap();
        store.compact(revision);
        let Followed::Listed(listing) = follow.next().await.unwrap() else {
            panic!("the change is gone");
        };
        assert_eq!((listing.revision, listing.entries.len()), (5, 3));
        follow.list_again();
        assert_eq!(follow.next().await.unwrap(), Followed::Listed(listing));
    }
}
