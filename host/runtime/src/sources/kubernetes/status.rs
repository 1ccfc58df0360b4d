//! What operators see of a cluster as a source: what is known, how fresh it is, and what went wrong last.
//!
//! Data alone: `watch.rs` fills it in, whoever serves it takes it as JSON.

use serde::Serialize;

/// A cluster as a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The API server's URL.
    pub server: String,
    /// Everything that is needed (Services and Nodes) was listed at least once.
    pub synced: bool,
    /// One for each kind, or for each kind and namespace, in their order.
    pub watches: Vec<WatchStatus>,
}

/// What one watch has brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WatchStatus {
    /// As in a manifest's `kind`.
    pub kind: &'static str,
    /// None: all of the cluster.
    pub namespace: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub status: ScopeStatus,
}

/// How one watch stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScopeStatus {
    /// How many are known.
    pub objects: usize,
    /// How many are there and can't be read.
    pub unreadable: usize,
    /// They were listed at least once.
    pub synced: bool,
    /// A watch is open now.
    pub watching: bool,
    /// Up to which version everything is known; none before the first list.
    pub resource_version: Option<String>,
    /// When something was last heard of it, a bookmark included, in ms since 1970; none: never.
    pub last_event_at_ms: Option<u64>,
    /// How many events were taken in, bookmarks apart.
    pub events: u64,
    /// How often it was listed.
    pub lists: u64,
    /// How often a watch was opened again.
    pub restarts: u64,
    /// How often something went wrong.
    pub errors: u64,
    /// What went wrong last; stays when it is over. One line.
    pub last_error: Option<String>,
    /// When that was, in ms since 1970.
    pub last_error_at_ms: Option<u64>,
}
