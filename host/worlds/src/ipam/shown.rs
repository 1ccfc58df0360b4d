//! What operators see of an instance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trueup_work::status::pods::Stats;

use super::holders::Forgotten;

/// The result of [`super::once`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The instance.
    pub instance: String,
    /// The counts at the end.
    pub stats: Stats,
    /// Releases of the spool that were worked off.
    pub released: usize,
    /// Why the store is not read, or a release failed. `None` if everything is done.
    pub error: Option<String>,
}

/// What a host answers for `trueup ipam show`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The instance.
    pub instance: String,
    /// The guest.
    pub guest: ShownGuest,
    /// Whether the store was read. Pods get addresses only then.
    pub read: bool,
    /// Why the store is not read, why it did not take the last change, or why the instance is not there. `None` if
    /// there is no error.
    pub error: Option<String>,
    /// Counts.
    pub stats: Stats,
    /// How long an address rests after its release, in milliseconds, from the guest's settings. 0 if it does not
    /// rest.
    pub cooling_period_ms: u64,
    /// Interfaces by device number then id, with their addresses and holders.
    pub enis: Vec<crate::ipam::guest::Eni>,
    /// Allocations whose address is on no interface, by address.
    pub held: Vec<crate::ipam::guest::PodIpInfo>,
    /// The ids of interfaces that were given up and are still in the list of interfaces.
    pub released: Vec<String>,
    /// The pods that hold addresses, `namespace/name` by address, as far as the plugin reported them.
    #[serde(default)]
    pub pods: BTreeMap<String, String>,
    /// Holders that the container runtime does not list, by address. Absent if the host does not ask it.
    #[serde(default)]
    pub missing: Option<Vec<Forgotten>>,
}

/// The guest of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownGuest {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
}
