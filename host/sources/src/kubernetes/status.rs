//! The status of a cluster source for operators: what is known, how recent it is, and the last error.
//!
//! Only data: `watch.rs` sets it, and the readers serialize it as JSON.

use serde::Serialize;

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WatchStatus {
    /// The name in a manifest's `kind`.
    pub kind: &'static str,
    /// `None`: the whole cluster.
    pub namespace: Option<String>,
    /// The other fields.
    #[serde(flatten)]
    pub status: ScopeStatus,
}

/// The status of one watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScopeStatus {
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
