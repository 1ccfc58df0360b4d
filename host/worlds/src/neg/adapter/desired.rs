//! What a look at the source gives: the desired state of a key, and which keys a change affects.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trueup_capabilities::neg::EndpointGroup;
use trueup_sources::ObjectRef;

use super::key::Key;

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

/// The effect of one look at the source.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changed {
    /// Keys whose desired state may have changed, including deleted ones. If the request of a Service in
    /// [`Changed::seen`] changed, that of every other known key of it may have changed too, even of one that it named
    /// long ago; and that of every key if [`Changed::completed`].
    pub(crate) affected: BTreeSet<Key>,
    /// Which objects affect which keys. Objects without affected keys are left out, except Services whose request
    /// changed.
    pub(crate) seen: Vec<Concern>,
    /// New notes for the operator, one line each. A note that disappears and returns is reported again.
    pub(crate) notes: Vec<String>,
    /// The source contains no object, but there is something to lose: it is treated as unavailable.
    pub(crate) is_empty: bool,
    /// The source contains no Node any more, and there are keys.
    pub(crate) no_nodes: bool,
    /// This look is complete and the previous one was not: missing objects are gone.
    pub(crate) completed: bool,
    /// [`super::Targets::locations`] has grown.
    pub(crate) more_locations: bool,
}

/// A changed object, and the keys that it affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Concern {
    /// The object.
    pub(crate) reference: ObjectRef,
    /// The affected keys.
    pub(crate) keys: BTreeSet<Key>,
}
