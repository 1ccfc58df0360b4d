//! What to read from a cluster.

use std::path::PathBuf;

use crate::object::Kind;

/// The default page size of a list, the same as in kubectl and the controllers of Kubernetes.
pub const PAGE_SIZE_DEFAULT: u32 = 500;

/// The kinds that every Service depends on: without one of them, no desired state is known. The configuration may need
/// more; the remaining kinds are read if possible.
pub(super) const NEEDED: [Kind; 2] = [Kind::Service, Kind::Node];

/// The default timeout of an answer in ms. A list of 10,000 objects arrives in pages; watches have no such limit.
pub const REQUEST_TIMEOUT_MS_DEFAULT: u64 = 30_000;

/// `[source.kubernetes]`: the cluster, and the objects to read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The kubeconfig. `None`: the pod's own service account if the host runs in a pod and `context` is not set,
    /// otherwise kubectl's default.
    pub kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig. `None`: the current one.
    pub context: Option<String>,
    /// The namespaces to read. Empty: all. Nodes belong to none.
    pub namespaces: Vec<String>,
    /// The Node whose Pods are read: of a cluster's 150,000 Pods a node has 110. `None`: all Pods.
    pub pods_of: Option<String>,
    /// The kinds to watch.
    pub watch: Vec<Kind>,
    /// The required kinds among them: subscribers receive nothing before all of these were listed.
    pub needed: Vec<Kind>,
    /// The number of objects in a page of a list.
    pub page_size: u32,
    /// The timeout of an answer in milliseconds.
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
