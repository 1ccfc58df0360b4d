//! Which source a host reads.

use std::path::PathBuf;

use tokio::sync::mpsc;

use crate::kubernetes;
use crate::object::Batch;

/// Where the desired state comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder of Kubernetes YAML.
    Manifests(PathBuf),
    /// A cluster.
    Kubernetes(kubernetes::Settings),
}

impl Source {
    /// Its name in configuration and status.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Manifests(_) => "manifests",
            Self::Kubernetes(_) => "kubernetes",
        }
    }

    /// Whether it is a cluster: the API server's answer is final.
    pub fn is_cluster(&self) -> bool {
        matches!(self, Self::Kubernetes(_))
    }

    /// The source, as in `a problem in the manifests`.
    pub fn place(&self) -> &'static str {
        match self {
            Self::Manifests(_) => "the manifests",
            Self::Kubernetes(_) => "the cluster",
        }
    }

    /// What may hide an object, so that objects without a source object are kept, in the words of this source.
    pub fn hidden(&self) -> &'static str {
        match self {
            Self::Manifests(_) => "a manifest can't be read, or the folder has none",
            Self::Kubernetes(_) => "not everything in the cluster is known",
        }
    }
}

/// The batches of a source. Dropping this ends the watch of a folder.
#[derive(Debug)]
pub enum Batches {
    /// From a folder of manifests.
    Manifests(mpsc::Receiver<Batch>),
    /// From a cluster.
    Kubernetes(kubernetes::Subscription),
}

impl Batches {
    /// The next batch, when there is one. `None` if the source cannot be watched any more. Cancel-safe: dropping the
    /// future loses nothing.
    pub async fn recv(&mut self) -> Option<Batch> {
        match self {
            Self::Manifests(batches) => batches.recv().await,
            Self::Kubernetes(subscription) => Some(subscription.next().await),
        }
    }
}
