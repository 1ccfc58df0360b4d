//! A Kubernetes cluster as a source: the objects in its API server, and their changes.
//!
//! Watching starts with [`Kubernetes::start`] and continues while the handle or a subscription exists. Each
//! subscription receives everything first, then the changes: a host that becomes active again subscribes again. The
//! source itself writes nothing; the active host does, with [`Kubernetes::patch_service`].
//!
//! ```text
//! API server -> watch.rs (one a kind and namespace) -> store.rs -> Subscription -> Batch
//!            <- patch_service
//! ```

mod client;
mod decode;
mod kubeconfig;
mod list;
mod probe;
mod settings;
mod store;
mod watch;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub use self::client::Failed;
pub use self::kubeconfig::ClusterError;
pub use self::probe::{Probe, Right};
pub use self::settings::{PAGE_SIZE_DEFAULT, REQUEST_TIMEOUT_MS_DEFAULT, Settings, Status, WatchStatus};

use self::client::{Cluster, Purpose};
use self::store::Store;
use self::watch::Watch;
use crate::object::{Batch, Object};

/// A cluster that is watched, or was listed once. All clones share one state; watching ends with the last of them and
/// of their subscriptions.
#[derive(Clone)]
pub struct Kubernetes {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Cluster,
    store: Arc<Store>,
    /// They end with this.
    watches: JoinSet<Infallible>,
}

impl Inner {
    /// Knows nothing yet, and watches nothing.
    async fn new(settings: &Settings) -> Result<Self, ClusterError> {
        Ok(Self {
            cluster: Cluster::new(settings).await?,
            store: Store::new(client::scopes(settings), &settings.needed),
            watches: JoinSet::new(),
        })
    }
}

impl Kubernetes {
    /// Starts to watch. Waits for an API server that does not answer. `seed` is the seed of the pauses between tries,
    /// and should differ between hosts.
    ///
    /// # Errors
    /// If the address of the API server cannot be determined.
    pub async fn start(settings: &Settings, seed: u64) -> Result<Self, ClusterError> {
        let mut inner = Inner::new(settings).await?;
        for (number, scope) in (0..).zip(client::scopes(settings)) {
            let mut chance = ChaCha8Rng::seed_from_u64(seed);
            chance.set_stream(number);
            let watch = Watch {
                cluster: inner.cluster.clone(),
                store: Arc::clone(&inner.store),
                scope,
                chance,
            };
            inner.watches.spawn(watch.run());
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Lists everything once, without watching.
    ///
    /// # Errors
    /// If the address of the API server cannot be determined, or a required list is unavailable.
    pub async fn once(settings: &Settings) -> Result<Self, ClusterError> {
        let inner = Inner::new(settings).await?;
        let mut first_failure = None;
        for scope in client::scopes(settings) {
            match list::list(&inner.cluster, &scope).await {
                Ok((objects, _)) => inner.store.replace(&scope, objects),
                Err(Failed { text, .. }) => {
                    let note = |status: &mut WatchStatus| status.last_error = Some(text.clone());
                    inner.store.note(&scope, note);
                    let first = first_failure.get_or_insert(text);
                    if settings.needed.contains(&scope.kind) {
                        return Err(ClusterError::Failed(first.clone()));
                    }
                }
            }
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A client of the API server, for callers that need it before the source. Sends nothing yet: a server that is down
    /// now may return.
    ///
    /// # Errors
    /// If the address of the API server cannot be determined.
    pub async fn connect(settings: &Settings) -> Result<kube::Client, ClusterError> {
        Ok(Cluster::new(settings).await?.client())
    }

    /// The content and its changes. The first batch comes after every required kind was listed, and contains everything
    /// known. A kind that cannot be listed is a problem until it can. Drop the subscription when it is no longer used:
    /// watches wait for the slowest subscriber.
    pub fn batches(&self) -> Subscription {
        let (number, wake) = self.inner.store.subscribe();
        let inner = Arc::clone(&self.inner);
        Subscription { inner, number, wake }
    }

    /// Everything known now. `None` until every required kind was listed.
    pub fn known(&self) -> Option<Batch> {
        let all = self.batches();
        self.inner.store.take(all.number)
    }

    /// Whether every required kind was listed at least once.
    pub fn is_synced(&self) -> bool {
        self.inner.store.is_synced()
    }

    /// The status for operators.
    pub fn status(&self) -> Status {
        Status {
            server: self.inner.cluster.server.clone(),
            synced: self.is_synced(),
            watches: self.inner.store.statuses(),
        }
    }

    /// Its client of the API server, for requests that do not concern objects of a source. It never repeats a request,
    /// and has no timeout.
    pub fn client(&self) -> kube::Client {
        self.inner.cluster.client()
    }

    /// Whether changes are watched, so that what is known may still change by itself.
    pub fn is_watched(&self) -> bool {
        !self.inner.watches.is_empty()
    }

    /// The known version of a Service.
    pub fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.inner.store.service(namespace, name)
    }

    /// The API server's version of a Service now.
    ///
    /// # Errors
    /// If the API server does not answer, or refuses.
    pub async fn read_service(&self, namespace: &str, name: &str) -> Result<Arc<Service>, Failed> {
        let cluster = &self.inner.cluster;
        let purpose = Purpose::one("get", "services", &format!("{namespace}/{name}"));
        let api: Api<Service> = Api::namespaced(cluster.client(), namespace);
        Ok(decode::trimmed(cluster.asked(&purpose, api.get(name)).await?))
    }

    /// Applies a merge patch to a Service, or to its status alone. The API server refuses it as a conflict if the
    /// Service is no longer in the version `known`. The result is known at once, without waiting for the watch. `left`
    /// is how long this host may still act.
    ///
    /// # Errors
    /// If the API server does not answer in time, or refuses.
    pub async fn patch_service(
        &self,
        known: &Arc<Service>,
        mut patch: Value,
        status: bool,
        left: Duration,
    ) -> Result<(), Failed> {
        let version = known.metadata.resource_version.as_deref();
        if let (Some(version), Some(metadata)) = (version, patch.get_mut("metadata").and_then(Value::as_object_mut)) {
            metadata.insert("resourceVersion".to_owned(), Value::from(version));
        }
        let of = Object::Service(Arc::clone(known)).reference();
        let cluster = &self.inner.cluster;
        let namespace = &of.namespace;
        let name = &of.name;
        let api: Api<Service> = Api::namespaced(cluster.client(), namespace);
        // Our name in the API server's record of field ownership.
        let parameters = PatchParams::apply("trueup");
        let patch = Patch::Merge(&patch);
        let resource = if status { "services/status" } else { "services" };
        let purpose = Purpose::one("patch", resource, &format!("{namespace}/{name}"));
        let asking = async {
            match status {
                true => api.patch_status(name, &parameters, &patch).await,
                false => api.patch(name, &parameters, &patch).await,
            }
        };
        let answer = tokio::time::timeout(left, cluster.asked(&purpose, asking)).await;
        let given_up = |_| cluster.failed(&purpose, "given up, since this host may act no longer");
        let written = answer.map_err(given_up)??;
        self.inner.store.wrote(version, decode::trimmed(written));
        Ok(())
    }
}

/// A subscriber of a cluster.
pub struct Subscription {
    inner: Arc<Inner>,
    number: u64,
    wake: Arc<Notify>,
}

impl Subscription {
    /// The next batch, when there is one. Cancel-safe: dropping the future loses nothing.
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
