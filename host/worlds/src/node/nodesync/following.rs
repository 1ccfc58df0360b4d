//! Follows what is stored under a prefix, beside the loop that takes it: a request goes on while the loop does
//! something else.
//!
//! Uses a task, not a future that the loop polls: the future might hold a resource that a guest's request to the same
//! store waits for, and the loop does not poll it during that request. This module does not pause. After an error it
//! rests until the loop requests a new listing.
//!
//! ```text
//! list_again -> task: listing -> next -> task: watch -> next -> ...
//!                                  \-> error: at rest
//! ```

use std::sync::Arc;

use tokio::task::JoinSet;
use trueup_capabilities::etcd::{self, Follow, Followed};

/// Follows one prefix of the store.
pub(super) struct Following {
    api: Arc<dyn etcd::Api>,
    prefix: String,
    /// The task that waits for what comes next. Empty at rest.
    coming: JoinSet<(Follow, Result<Followed, etcd::Error>)>,
}

impl Following {
    /// Starts at rest.
    pub(super) fn new(api: Arc<dyn etcd::Api>, prefix: String) -> Self {
        Self {
            api,
            prefix,
            coming: JoinSet::new(),
        }
    }

    /// Begins a new listing, which comes next. Discards a request in progress.
    pub(super) fn list_again(&mut self) {
        self.rest();
        let follow = Follow::new(Arc::clone(&self.api), self.prefix.clone());
        self.coming.spawn(step(follow));
    }

    /// Stops following.
    pub(super) fn rest(&mut self) {
        // Dropping the set aborts its task.
        self.coming = JoinSet::new();
    }

    /// Waits for what comes next. `None` at rest, also after an error. Cancel-safe: a later call loses nothing and
    /// starts nothing again.
    pub(super) async fn next(&mut self) -> Option<Result<Followed, etcd::Error>> {
        let came = self.coming.join_next().await?;
        let broken = |error| etcd::Error::Unavailable(format!("the task that reads it: {error}"));
        Some(came.map_err(broken).and_then(|(follow, followed)| {
            if followed.is_ok() {
                self.coming.spawn(step(follow));
            }
            followed
        }))
    }

    /// Stops following. Once this returns, no request to the store is left.
    pub(super) async fn end(mut self) {
        self.coming.shutdown().await;
    }
}

async fn step(mut follow: Follow) -> (Follow, Result<Followed, etcd::Error>) {
    let followed = follow.next().await;
    (follow, followed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;
    use trueup_capabilities::async_trait;
    use trueup_capabilities::etcd::embedded::Embedded;
    use trueup_capabilities::etcd::{Api, Applied, Compare, Error, KeyValue, Listing, Operation, Watch};

    use super::*;

    /// How often the loop does something else meanwhile.
    const TURNS: usize = 100;

    /// A store whose listings wait until the test lets them through.
    struct Slow {
        store: Embedded,
        asked: AtomicUsize,
        let_through: Semaphore,
        is_down: bool,
    }

    impl Slow {
        fn new(is_down: bool) -> Arc<Self> {
            Arc::new(Self {
                store: Embedded::in_memory().unwrap(),
                asked: AtomicUsize::new(0),
                let_through: Semaphore::new(0),
                is_down,
            })
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::SeqCst)
        }
    }

    #[async_trait]
    impl Api for Slow {
        async fn get(&self, key: &str) -> Result<Option<KeyValue>, Error> {
            self.store.get(key).await
        }

        async fn transact(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error> {
            self.store.transact(compares, operations).await
        }

        async fn listing(&self, prefix: &str) -> Result<Listing, Error> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.let_through.acquire().await.unwrap().forget();
            if self.is_down {
                return Err(Error::Unavailable("down".to_owned()));
            }
            self.store.listing(prefix).await
        }

        fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch> {
            self.store.watch(prefix, after)
        }
    }

    fn following(store: &Arc<Slow>) -> Following {
        let api: Arc<dyn Api> = Arc::clone(store) as _;
        Following::new(api, "/a/".to_owned())
    }

    /// Polls like a loop that has something else to do each time.
    async fn turn_away(following: &mut Following) {
        for _ in 0..TURNS {
            tokio::select! {
                biased;
                _ = following.next() => panic!("nothing was let through"),
                () = tokio::task::yield_now() => {}
            }
        }
    }

    #[tokio::test]
    async fn a_listing_goes_on_whatever_else_is_done_meanwhile() {
        let store = Slow::new(false);
        let mut following = following(&store);
        assert!(following.next().await.is_none(), "it is at rest");
        following.list_again();
        turn_away(&mut following).await;
        store.let_through.add_permits(1);
        assert!(matches!(following.next().await, Some(Ok(Followed::Listed(_)))));
        // So does the watch, without losing a change.
        turn_away(&mut following).await;
        for key in [b"/a/1", b"/a/2"] {
            let revision = store.store.put_bytes(key, b"x").await.unwrap();
            let Some(Ok(Followed::Changed(changes))) = following.next().await else {
                panic!("a change");
            };
            assert_eq!(changes.revision, revision);
        }
        assert_eq!(store.asked(), 1);
    }

    #[tokio::test]
    async fn nothing_comes_of_what_was_on_its_way_before_it_is_listed_again() {
        let store = Slow::new(false);
        let mut following = following(&store);
        for asked in 1..=2 {
            following.list_again();
            turn_away(&mut following).await;
            assert_eq!(store.asked(), asked);
        }
        store.let_through.add_permits(2);
        assert!(matches!(following.next().await, Some(Ok(Followed::Listed(_)))));
        turn_away(&mut following).await;
        assert_eq!(store.let_through.available_permits(), 1, "the first one is gone");
        following.rest();
        assert!(following.next().await.is_none());
        following.list_again();
        following.end().await;
        assert_eq!(Arc::strong_count(&store), 1, "the store is released");
    }

    #[tokio::test]
    async fn an_error_is_told_once_and_nothing_is_asked_until_it_is_listed_again() {
        let store = Slow::new(true);
        let mut following = following(&store);
        store.let_through.add_permits(2);
        for asked in 1..=2 {
            following.list_again();
            let error = following.next().await;
            assert_eq!(error, Some(Err(Error::Unavailable("down".to_owned()))));
            assert!(following.next().await.is_none());
            assert_eq!(store.asked(), asked);
        }
    }
}
