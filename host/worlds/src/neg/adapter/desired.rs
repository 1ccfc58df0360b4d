//! What a look at the source gives: the desired state of a key, and which keys a change affects.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trueup_capabilities::neg::{EndpointGroup, NegRef};
use trueup_sources::{Kind, ObjectRef};

use super::key::Key;

/// The desired state of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// [`NEG_NAMES`](trueup_config::NEG_NAMES) and [`ZONES`](trueup_config::ZONES), which override the configuration's
    /// settings. If they change, the host reopens the instance with its state.
    pub settings: Map<String, Value>,
    /// The argument of `syncer.sync`: ascending, without duplicate locations or empty groups.
    pub target: Vec<EndpointGroup>,
    /// Every NEG that the instance reads, ascending: for status, and to check the grants.
    pub negs: Vec<NegRef>,
    /// Ready endpoints that are in no NEG because of their Node or address. Notes say why.
    pub left_out: usize,
}

/// The past and present locations of Nodes. Zones and subnets are only added, so that the host still finds endpoints in
/// a NEG after its last Node is gone. The caller keeps this across restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Places {
    /// Zones of Nodes.
    #[serde(default)]
    pub zones: BTreeSet<String>,
    /// Subnets of Nodes.
    #[serde(default)]
    pub subnets: BTreeSet<String>,
}

/// The effect of one look at the source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changed {
    /// Keys whose desired state may have changed, including deleted ones. For keys that are not listed, see
    /// [`Changed::affects`].
    pub affected: BTreeSet<Key>,
    /// Which objects affect which keys. Objects without affected keys are left out, except Services whose request
    /// changed.
    pub seen: Vec<Concern>,
    /// New notes for the operator, one line each. A note that disappears and returns is reported again.
    pub notes: Vec<String>,
    /// The source contains no object, but there is something to lose: it is treated as unavailable.
    pub is_empty: bool,
    /// The source contains no Node any more, and there are keys.
    pub no_nodes: bool,
    /// This look is complete and the previous one was not: missing objects are gone.
    pub completed: bool,
    /// [`super::Targets::places`] has grown.
    pub more_places: bool,
}

impl Changed {
    /// Whether the desired state of `key` may have changed. If a Service's request changed, that includes every known
    /// key of it, even one that it named long ago: while its annotation is invalid, no key of it is gone. After a look
    /// is complete again, it includes every key: missing objects are gone.
    pub fn affects(&self, key: &Key) -> bool {
        let is_its_service = |concern: &Concern| {
            let ObjectRef { kind, namespace, name } = &concern.reference;
            *kind == Kind::Service && *namespace == key.namespace && *name == key.name
        };
        self.completed || self.affected.contains(key) || self.seen.iter().any(is_its_service)
    }
}

/// A changed object, and the keys that it affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concern {
    /// The object.
    pub reference: ObjectRef,
    /// The affected keys.
    pub keys: BTreeSet<Key>,
}
