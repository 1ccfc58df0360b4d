//! The status of an election for operators. Its times are those of wall clocks and decide nothing.

use serde::{Deserialize, Serialize};

/// The leader, as this host knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `namespace/name` of the Lease.
    pub lease: String,
    /// This host's name in it.
    pub identity: String,
    /// Whether this host leads.
    pub leading: bool,
    /// Since when it leads (RFC 3339). Absent if it does not lead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leading_since: Option<String>,
    /// The holder of the Lease, as last seen. Absent if there is none, or it was not seen yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub holder: Option<String>,
    /// Since when the holder holds it, by the holder's clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub acquired: Option<String>,
    /// When the holder last renewed it, by the holder's clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub renewed: Option<String>,
    /// How often it went from one holder to another.
    pub transitions: i32,
    /// How often this host began to lead.
    pub terms: u64,
    /// Successful renewals of this host, including acquisitions.
    pub renewals: u64,
    /// Requests for the Lease that failed, not counting conflicts.
    pub failures: u64,
    /// Why the last request failed, on one line. Absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}
