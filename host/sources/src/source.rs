//! Which source a host reads.

use std::path::PathBuf;

use crate::kubernetes;

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
            Self::Manifests(_) => "a manifest can't be read",
            Self::Kubernetes(_) => "not everything in the cluster is known",
        }
    }
}
