//! What the source says: the desired state of a key, and where Nodes are.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trueup_capabilities::neg::EndpointGroup;

/// The desired state of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Desired {
    /// [`NEG_NAMES`](trueup_config::NEG_NAMES) and [`ZONES`](trueup_config::ZONES), which override the configuration's
    /// settings. If they change, the host reopens the instance with its state.
    pub(crate) settings: Map<String, Value>,
    /// The argument of `syncer.sync`: ascending, without duplicate locations or empty groups.
    pub(crate) target: Vec<EndpointGroup>,
}

impl Desired {
    /// The number of endpoints.
    pub(crate) fn endpoints(&self) -> u64 {
        self.target.iter().map(|group| group.endpoints.len() as u64).sum()
    }
}

/// The past and present locations of Nodes. Zones and subnets are only added, so that the host still finds endpoints in
/// a NEG after its last Node is gone. The caller keeps this across restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Locations {
    /// Zones of Nodes.
    #[serde(default)]
    pub(crate) zones: BTreeSet<String>,
    /// Subnets of Nodes.
    #[serde(default)]
    pub(crate) subnets: BTreeSet<String>,
}
