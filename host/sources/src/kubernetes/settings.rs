//! What to read from a cluster, and its status for operators: what is known, how recent it is, and the last error.
//!
//! Only data: `watch.rs` sets the status, and the readers serialize it as JSON.

use std::path::PathBuf;

use serde::Serialize;

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

/// A cluster as a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The API server's URL.
    pub server: String,
    /// Whether everything required (Services and Nodes) was listed at least once.
    pub synced: bool,
    /// One for each kind, or for each kind and namespace.
    pub watches: Vec<WatchStatus>,
}

/// The status of one watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatchStatus {
    /// The name in a manifest's `kind`.
    pub kind: &'static str,
    /// `None`: the whole cluster.
    pub namespace: Option<String>,
    /// The number of known objects.
    pub objects: usize,
    /// The number of unreadable objects.
    pub unreadable: usize,
    /// Whether they were listed at least once.
    pub synced: bool,
    /// Whether a watch is open now.
    pub watching: bool,
    /// The version up to which everything is known. `None` before the first list.
    pub resource_version: Option<String>,
    /// When the last event or bookmark arrived, in ms since 1970. `None`: never.
    pub last_event_at_ms: Option<u64>,
    /// The number of events, without bookmarks.
    pub events: u64,
    /// The number of lists.
    pub lists: u64,
    /// How often a watch was reopened.
    pub restarts: u64,
    /// The number of errors.
    pub errors: u64,
    /// The last error, in one line. It remains after recovery.
    pub last_error: Option<String>,
    /// When it occurred, in ms since 1970.
    pub last_error_at_ms: Option<u64>,
}
