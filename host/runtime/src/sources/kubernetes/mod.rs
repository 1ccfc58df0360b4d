//! A Kubernetes cluster as a source: what its API server holds, what changes, and what is written back.
//!
//! Watching begins with [`Kubernetes::start`] and goes on for as long as the handle, or a subscription, is there. Each
//! subscription is told everything first, then what changes: a host that begins to act again subscribes again. It writes
//! nothing by itself; [`mod@write`] does, for whoever may.
//!
//! ```text
//! API server -> watch.rs (one a kind and namespace) -> store.rs -> Subscription -> Batch
//!            <- write.rs, events.rs <- run/publish.rs
//! ```

mod client;
mod decode;
pub(crate) mod events;
mod list;
mod status;
mod store;
mod watch;
pub(crate) mod write;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

pub use self::client::ClusterError;
pub use self::status::{ScopeStatus, Status, WatchStatus};

use self::client::Cluster;
use self::store::Store;
use self::watch::Watch;
use super::{Batch, Batches, Kind};

/// So many objects one page of a list holds by default: what kubectl and the controllers of Kubernetes ask for.
pub const PAGE_SIZE_DEFAULT: u32 = 500;

/// What everything is made from: without one of these kinds nothing can be said of any Service. The configuration may need
/// more; the others are looked at where that is possible.
pub(crate) const NEEDED: [Kind; 2] = [Kind::Service, Kind::Node];

/// An answer takes at most so many ms by default. A list of 10,000 objects comes in pages; watches last as they do.
pub const REQUEST_TIMEOUT_MS_DEFAULT: u64 = 30_000;

/// `[source.kubernetes]`: which cluster, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The kubeconfig. None: the pod's own service account where the host runs in one and no `context` is given, else as
    /// kubectl finds it.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; none: its current one.
    pub context: Option<String>,
    /// What is looked at; empty: all. Nodes are in none.
    pub namespaces: Vec<String>,
    /// The Node whose Pods are looked at, and no others: of a cluster's 150,000 a node has 110. None: all Pods.
    pub pods_of: Option<String>,
    /// The kinds that are watched.
    pub watch: Vec<Kind>,
    /// Those of them without which nothing can be said: nothing is told before all of these were listed.
    pub needed: Vec<Kind>,
    /// So many objects one page of a list holds.
    pub page_size: u32,
    /// Milliseconds that an answer may take.
    pub request_timeout_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            namespaces: Vec::new(),
            pods_of: None,
            watch: Kind::ALL.to_vec(),
            needed: NEEDED.to_vec(),
            page_size: PAGE_SIZE_DEFAULT,
            request_timeout_ms: REQUEST_TIMEOUT_MS_DEFAULT,
        }
    }
}

/// A cluster that is watched, or was listed once. All clones are one; watching ends with the last of them and of its
/// subscriptions.
#[derive(Clone)]
pub struct Kubernetes {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Cluster,
    store: Arc<Store>,
    watches: Vec<AbortHandle>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for watch in &self.watches {
            watch.abort();
        }
    }
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes")
            .field("server", &self.inner.cluster.server())
            .finish_non_exhaustive()
    }
}

impl Kubernetes {
    /// Begins to watch. An API server that does not answer is waited for; `seed` is that of pauses between tries, and
    /// should differ from host to host.
    ///
    /// # Errors
    /// Where it can't be found out where the API server is.
    pub async fn start(settings: &Settings, seed: u64) -> Result<Self, ClusterError> {
        let cluster = Cluster::new(settings).await?;
        let scopes = client::scopes(settings);
        let store = Store::new(scopes.iter().cloned(), &settings.needed);
        let watches = (0..).zip(scopes).map(|(number, scope)| {
            let mut chance = ChaCha8Rng::seed_from_u64(seed);
            chance.set_stream(number);
            let watch = Watch {
                cluster: cluster.clone(),
                store: Arc::clone(&store),
                scope,
                chance,
            };
            tokio::spawn(watch.run()).abort_handle()
        });
        let watches = watches.collect();
        Ok(Self {
            inner: Arc::new(Inner {
                cluster,
                store,
                watches,
            }),
        })
    }

    /// Lists everything once, and watches nothing.
    ///
    /// # Errors
    /// Where it can't be found out where the API server is, or that does not say what is needed.
    pub async fn once(settings: &Settings) -> Result<Self, ClusterError> {
        let cluster = Cluster::new(settings).await?;
        let scopes = client::scopes(settings);
        let store = Store::new(scopes.iter().cloned(), &settings.needed);
        let mut first_failure = None;
        for scope in scopes {
            match list::list(&cluster, &scope).await {
                Ok((objects, _)) => store.replace(&scope, objects),
                Err(failed) => {
                    store.note(&scope, |status| status.last_error = Some(failed.text.clone()));
                    let first = first_failure.get_or_insert(failed);
                    if settings.needed.contains(&scope.kind) {
                        return Err(ClusterError::Failed(first.text.clone()));
                    }
                }
            }
        }
        let watches = Vec::new();
        Ok(Self {
            inner: Arc::new(Inner {
                cluster,
                store,
                watches,
            }),
        })
    }

    /// Speaks to the API server, for whoever comes before the source. Nothing is sent yet.
    ///
    /// # Errors
    /// As [`Kubernetes::check`].
    pub async fn connect(settings: &Settings) -> Result<kube::Client, ClusterError> {
        Ok(Cluster::new(settings).await?.client())
    }

    /// Whether it can be found out where the API server is. Does not speak to it: one that is away now may be back.
    ///
    /// # Errors
    /// Where it can't.
    pub async fn check(settings: &Settings) -> Result<(), ClusterError> {
        Cluster::new(settings).await.map(drop)
    }

    /// What it holds and how that changes. The first batch comes when every kind that is needed was listed, and holds all
    /// that is known; a kind that can't be listed is a problem in it until it can. Who takes no batches any more must drop this: watches wait for the slowest.
    pub fn batches(&self) -> Batches {
        let (number, wake) = self.inner.store.subscribe();
        Batches::Kubernetes(Subscription {
            inner: Arc::clone(&self.inner),
            number,
            wake,
        })
    }

    /// Everything as it is known now; none: not all that is needed was listed yet.
    pub fn known(&self) -> Option<Batch> {
        let (number, _) = self.inner.store.subscribe();
        let all = self.inner.store.take(number);
        self.inner.store.unsubscribe(number);
        all
    }

    /// Whether every kind that is needed was listed at least once.
    pub fn is_synced(&self) -> bool {
        self.inner.store.is_synced()
    }

    /// What operators see of it.
    pub fn status(&self) -> Status {
        let watches = self.inner.store.statuses().into_iter();
        Status {
            server: self.inner.cluster.server().to_owned(),
            synced: self.is_synced(),
            watches: watches
                .map(|(scope, status)| WatchStatus {
                    kind: scope.kind.name(),
                    namespace: scope.namespace,
                    status,
                })
                .collect(),
        }
    }

    /// The client that it speaks to the API server with, for requests that are not about objects of a source. It sends
    /// nothing again by itself, and has no time limit.
    pub fn client(&self) -> kube::Client {
        self.inner.cluster.client()
    }

    /// One Service as it is known.
    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.inner.store.service(namespace, name)
    }
}

/// What somebody is told of a cluster.
pub struct Subscription {
    inner: Arc<Inner>,
    number: u64,
    wake: Arc<Notify>,
}

impl Subscription {
    /// The next batch, when there is one. Nothing is lost where this is dropped before it answers.
    pub async fn next(&mut self) -> Batch {
        loop {
            if let Some(batch) = self.inner.store.take(self.number) {
                return batch;
            }
            self.wake.notified().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.inner.store.unsubscribe(self.number);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
