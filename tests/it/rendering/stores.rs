//! Faults in front of a store or a packet filter.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use trueup_capabilities::async_trait;
use trueup_capabilities::etcd::{self, Applied, Compare, Error, KeyValue, Listing, Operation, Watch};
use trueup_capabilities::nftables;

/// The outcome of a question that changes something, or lists everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    /// Not done, and the answer reports that.
    Refused,
    /// Done, and the answer is lost.
    Lost,
}

/// The outcomes of the next questions, in order; later ones are done. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fates(Arc<Mutex<VecDeque<Fate>>>);

impl Fates {
    pub(crate) fn new(fates: &[Fate]) -> Self {
        Self(Arc::new(Mutex::new(fates.iter().copied().collect())))
    }

    fn next(&self) -> Fate {
        self.0.lock().unwrap().pop_front().unwrap_or(Fate::Done)
    }

    /// From now on every question is done.
    pub(crate) fn end(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// A store with some failing listings and commits.
pub(crate) struct Store {
    pub(crate) inner: Arc<dyn etcd::Api>,
    pub(crate) fates: Fates,
}

#[async_trait]
impl etcd::Api for Store {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, Error> {
        self.inner.get(key).await
    }

    async fn list_prefix(&self, prefix: &str) -> Result<Vec<KeyValue>, Error> {
        match self.fates.next() {
            Fate::Done => self.inner.list_prefix(prefix).await,
            Fate::Refused | Fate::Lost => Err(Error::Unavailable("no leader".to_owned())),
        }
    }

    async fn transact(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error> {
        self.inner.transact(compares, operations).await
    }

    async fn commit(&self, compares: &[Compare], operations: &[Operation]) -> Result<bool, Error> {
        let fate = self.fates.next();
        if fate == Fate::Refused {
            return Err(Error::Unavailable("no leader".to_owned()));
        }
        let answer = self.inner.commit(compares, operations).await;
        if fate == Fate::Lost {
            return Err(Error::Unavailable("the answer is lost".to_owned()));
        }
        answer
    }

    async fn listing(&self, prefix: &str) -> Result<Listing, Error> {
        self.inner.listing(prefix).await
    }

    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch> {
        self.inner.watch(prefix, after)
    }
}

/// A packet filter with some failing transactions.
pub(crate) struct Filter<T> {
    pub(crate) inner: T,
    pub(crate) fates: Fates,
}

#[async_trait]
impl<T: nftables::Api> nftables::Api for Filter<T> {
    async fn apply(&self, ruleset: &str) -> Result<(), String> {
        let fate = self.fates.next();
        if fate == Fate::Refused {
            return Err("nft: no".to_owned());
        }
        let answer = self.inner.apply(ruleset).await;
        if fate == Fate::Lost {
            return Err("nft: took too long, and it is not known what it did".to_owned());
        }
        answer
    }
}
