//! The three stores for the suite, with operations that no guest has: write bytes, compact, cut, lose an answer.

use std::sync::Arc;

use tempfile::TempDir;
use trueup_capabilities::etcd::embedded::Embedded;
use trueup_capabilities::etcd::planned::Planned;
use trueup_capabilities::etcd::remote::{Etcd, Settings};
use trueup_capabilities::etcd::{Api, Compare, Error, FIRST_REVISION, Operation};

use super::proxy::Proxy;
use super::server::Server;

pub(crate) struct Store {
    pub(crate) api: Arc<dyn Api>,
    kind: Kind,
}

enum Kind {
    Embedded(
        Embedded,
        #[expect(dead_code, reason = "the file is there as long as this is")] Option<TempDir>,
    ),
    /// With a proxy in between.
    Etcd(Box<Server>, Proxy),
}

impl Store {
    pub(crate) fn in_memory() -> Self {
        Self::of(Embedded::in_memory().unwrap(), None)
    }

    pub(crate) fn embedded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::of(Embedded::open(&folder.path().join("etcd.redb")).unwrap(), Some(folder))
    }

    fn of(store: Embedded, folder: Option<TempDir>) -> Self {
        Self {
            api: Arc::new(store.clone()),
            kind: Kind::Embedded(store, folder),
        }
    }

    /// The store of a plan over this one.
    pub(crate) fn planned(&self) -> Self {
        Self {
            api: Arc::new(Planned::new(Arc::clone(&self.api)).unwrap()),
            kind: Kind::Embedded(Embedded::in_memory().unwrap(), None),
        }
    }

    pub(crate) async fn etcd() -> Self {
        let server = Server::start().await;
        let proxy = Proxy::to(server.address()).await;
        Self {
            api: Arc::new(Etcd::new(Settings::new(vec![proxy.url()]))),
            kind: Kind::Etcd(Box::new(server), proxy),
        }
    }

    /// Writes bytes that need not be text, like another program.
    pub(crate) async fn put_bytes(&self, key: &[u8], value: &[u8]) {
        match &self.kind {
            Kind::Embedded(store, _) => {
                store.put_bytes(key, value).await.unwrap();
            }
            Kind::Etcd(server, _) => {
                server.client().await.put(key, value, None).await.unwrap();
            }
        }
    }

    /// Forgets everything before that revision.
    pub(crate) async fn compact(&self, revision: u64) {
        match &self.kind {
            Kind::Embedded(store, _) => store.compact(revision),
            Kind::Etcd(server, _) => {
                let revision = revision.try_into().unwrap();
                server.client().await.compact(revision, None).await.unwrap();
            }
        }
    }

    /// Ends every connection to the store; a store in this process has none.
    pub(crate) async fn cut(&self) {
        if let Kind::Etcd(_, proxy) = &self.kind {
            proxy.cut().await;
        }
    }

    /// Commits without receiving the answer: the proxy loses it, or the caller stops waiting. Returns what the guest
    /// gets, if it gets anything.
    pub(crate) async fn commit_unheard(&self, compares: &[Compare], operations: &[Operation]) -> Option<Error> {
        let committing = self.api.commit(compares, operations);
        let Kind::Etcd(_, proxy) = &self.kind else {
            // Poll once to start it; then drop it.
            tokio::select! {
                biased;
                _ = committing => {}
                () = std::future::ready(()) => {}
            }
            return None;
        };
        // An open connection with nothing in flight.
        self.api.get("up").await.unwrap();
        proxy.swallow(true);
        let lose = async {
            proxy.swallowed().await;
            // The first lost bytes may not be the answer; the stored revision tells.
            while self.revision_behind_the_proxy().await == FIRST_REVISION {
                tokio::task::yield_now().await;
            }
            proxy.cut().await;
            proxy.swallow(false);
        };
        let (answer, ()) = tokio::join!(committing, lose);
        Some(answer.unwrap_err())
    }

    async fn revision_behind_the_proxy(&self) -> u64 {
        let Kind::Etcd(server, _) = &self.kind else { return 0 };
        let answer = server.client().await.get("up", None).await.unwrap();
        answer.header().unwrap().revision().try_into().unwrap()
    }

    /// The store's present revision.
    pub(crate) async fn revision(&self) -> u64 {
        self.api.listing("no such key").await.unwrap().revision
    }
}

pub(crate) fn put(key: &str, value: &str) -> Operation {
    Operation::Put((key.to_owned(), value.to_owned()))
}

pub(crate) fn delete(key: &str) -> Operation {
    Operation::Delete(key.to_owned())
}
