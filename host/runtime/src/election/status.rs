//! What an operator is shown of an election. Times are those of wall clocks, for people; nothing is decided by them.

use serde::{Deserialize, Serialize};

/// Who leads, as this host knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `namespace/name` of the Lease.
    pub lease: String,
    /// This host's name in it.
    pub identity: String,
    /// Whether this host leads.
    pub leading: bool,
    /// Since when it leads (RFC 3339). Absent: it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leading_since: Option<String>,
    /// Who holds the Lease, as it was seen last. Absent: nobody, or it was not seen yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub holder: Option<String>,
    /// Since when the holder holds it, as the holder says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub acquired: Option<String>,
    /// When the holder renewed it last, as the holder says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub renewed: Option<String>,
    /// How often it went from one holder to another.
    pub transitions: i32,
    /// How often this host began to lead.
    pub terms: u64,
    /// Renewals of this host that succeeded, acquisitions among them.
    pub renewals: u64,
    /// Requests for the Lease that failed; conflicts are none.
    pub failures: u64,
    /// Why the last request failed, on one line. Absent: it did not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}
