//! The objects of one Service: their tag, and how they are found without it.

use std::collections::BTreeSet;

/// The prefix of the tag that assigns a resource to a Service; the Service's uid follows.
pub(super) const SERVICE_TAG_PREFIX: &str = "anxccm-svc-uid=";

/// Whether these tags belong to a resource of another Service than the one that is to carry `wanted`.
pub(super) fn is_foreign(tags: &[String], wanted: &[String]) -> bool {
    tags.iter()
        .any(|tag| tag.starts_with(SERVICE_TAG_PREFIX) && !wanted.contains(tag))
}

/// Identifies the objects of one Service: by their names, and by the load balancers above them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The name of each of its objects equals this or ends with it after a dot.
    pub name_suffix: String,
    /// Objects found by name get the tag of this Service. `None` means that the Service is gone. Then any listed tag
    /// will do, since everything under it is destroyed.
    pub service_uid: Option<String>,
    /// The load balancers that may hold its objects.
    pub load_balancers: BTreeSet<String>,
}
