//! Why a job ran: an object that changed, or what else there is.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::{Fields, differing};
use super::pending::CAUSES_MAX;
use crate::sources::{Change, Object, ObjectRef};

/// Fields of objects that say nothing of what should be: who wrote them, how often, and when a Node reported itself last.
const NOISE: [&str; 7] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "observedGeneration",
    "lastHeartbeatTime",
    "lastTransitionTime",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Why a job ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Cause {
    /// An object that the key depends on: its own Service, another one with its UID, or a Node.
    Input(Input),
    /// The host started: what is applied is compared with what should be.
    Start,
    /// This host acts from here on: another one may have left anything half-done.
    Acts,
    /// The source could not be read whole and can be now: what is missing in it is gone.
    Whole,
    /// The job before failed.
    Retry {
        /// So often in a row.
        failures: u32,
        /// What it said last.
        error: String,
    },
    /// Nothing changed: it was looked at again all the same.
    Resync,
    /// The job before was ended while it slept, and none of the other reasons.
    Interrupted,
    /// Somebody asked: of pod addresses.
    Request {
        /// Who asked for what.
        request: String,
    },
    /// An operation that the guest had started ended: of NEGs.
    Operation {
        /// Its number.
        operation: u64,
        /// Why it failed; none: it succeeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
    /// A timer that the guest had set was due.
    Timer,
    /// An operator said whether it is in its error state: of NEGs.
    ErrorState {
        /// It is from here on.
        on: bool,
    },
    /// Another version of the guest became active.
    Version {
        /// Name and version: `lbaas@2`.
        guest: String,
        /// `sha256:` and its digest.
        digest: String,
        /// Name and version of the one before.
        before: String,
    },
    /// Its input was set aside, and is tried again: it changed, or the guest did.
    Released {
        /// Since when it was set aside, in milliseconds since 1970.
        since_ms: u64,
        /// Why it was.
        error: String,
    },
}

/// An object that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// `Service`, `Node`.
    pub kind: String,
    /// Empty for kinds without.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.uid`, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `metadata.resourceVersion`, where there is one: manifests have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// What became of it.
    pub change: Happened,
    /// Which fields, where it was there before.
    #[serde(flatten)]
    pub fields: Fields,
}

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// It was there when the host started.
    Found,
    /// It is new.
    Added,
    /// It is another one.
    Changed,
    /// It is gone.
    Gone,
}

/// A change that was taken in, and whom it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen<K> {
    pub(crate) input: Input,
    pub(crate) keys: Vec<K>,
}

/// Nodes that changed together: they concern every key, so what is kept of them is bounded before it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// At most [`CAUSES_MAX`].
    pub(crate) inputs: Vec<Input>,
    /// So many more changed.
    pub(crate) more: usize,
}

impl Nodes {
    /// One more that changed, where this was there `before`.
    pub(crate) fn see(&mut self, change: &Change, before: Option<&Object>) {
        if self.inputs.len() < CAUSES_MAX {
            self.inputs.push(Input::of(change, before));
        } else {
            self.more += 1;
        }
    }
}

impl Input {
    /// What a change is, where this was there `before`.
    pub(crate) fn of(change: &Change, before: Option<&Object>) -> Self {
        let ObjectRef { kind, namespace, name } = &change.reference;
        let metadata = change.now.as_ref().or(before).map(Object::metadata);
        let happened = match (before, &change.now) {
            (_, None) => Happened::Gone,
            (None, Some(_)) => Happened::Added,
            (Some(_), Some(_)) => Happened::Changed,
        };
        let fields = match (before, &change.now) {
            (Some(before), Some(now)) => differing(&json(before), &json(now), &|name| NOISE.contains(&name)),
            _ => Fields::default(),
        };
        Self {
            kind: kind.name().to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
            uid: metadata.and_then(|metadata| metadata.uid.clone()),
            resource_version: metadata.and_then(|metadata| metadata.resource_version.clone()),
            change: happened,
            fields,
        }
    }

    /// `Service default/web`, `Node node-1`.
    pub fn object(&self) -> String {
        if self.namespace.is_empty() {
            format!("{} {}", self.kind, self.name)
        } else {
            format!("{} {}/{}", self.kind, self.namespace, self.name)
        }
    }

    /// Whether this is about the same object.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        (&self.kind, &self.namespace, &self.name) == (&other.kind, &other.namespace, &other.name)
    }

    /// This change and a later one of the same object as one; none: it is again what it was, or was never there.
    pub(super) fn then(&self, later: &Self) -> Option<Self> {
        let change = match (self.change, later.change) {
            (Happened::Added, Happened::Gone) => return None,
            (Happened::Added | Happened::Found, Happened::Changed) => self.change,
            (Happened::Gone, Happened::Added) => Happened::Changed,
            (_, change) => change,
        };
        let fields = match change {
            Happened::Changed => self.fields.clone().then(later.fields.clone()),
            Happened::Found | Happened::Added | Happened::Gone => Fields::default(),
        };
        // One that went and came back differs in ways that nobody compared.
        let went = self.change == Happened::Gone;
        (!fields.is_empty() || went || change != Happened::Changed).then(|| Self {
            change,
            fields,
            ..later.clone()
        })
    }
}

impl Cause {
    /// In a few words, for a trace.
    pub fn words(&self) -> String {
        match self {
            Self::Input(input) => {
                let happened = match input.change {
                    Happened::Found => "found",
                    Happened::Added => "added",
                    Happened::Changed => "changed",
                    Happened::Gone => "gone",
                };
                format!("{} {happened}", input.object())
            }
            Self::Start => "start".to_owned(),
            Self::Acts => "this host acts now".to_owned(),
            Self::Whole => "source whole again".to_owned(),
            Self::Retry { failures, .. } => format!("retry after failure {failures}"),
            Self::Resync => "resync".to_owned(),
            Self::Interrupted => "interrupted before".to_owned(),
            Self::Request { request } => request.clone(),
            Self::Operation {
                operation,
                failure: None,
            } => format!("operation {operation} succeeded"),
            Self::Operation { operation, .. } => format!("operation {operation} failed"),
            Self::Timer => "timer".to_owned(),
            Self::ErrorState { on } => format!("error state {}", if *on { "on" } else { "off" }),
            Self::Version { guest, .. } => format!("version {guest} became active"),
            Self::Released { .. } => "released from quarantine".to_owned(),
        }
    }
}

fn json(object: &Object) -> Value {
    let json = match object {
        Object::EndpointSlice(slice) => serde_json::to_value(slice.as_ref()),
        Object::Pod(pod) => serde_json::to_value(pod.as_ref()),
        Object::Node(node) => serde_json::to_value(node.as_ref()),
        Object::Service(service) => serde_json::to_value(service.as_ref()),
    };
    // It was read from JSON or YAML.
    json.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input(change: Happened, old: Value, new: Value) -> Input {
        Input {
            kind: "Service".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: None,
            resource_version: None,
            change,
            fields: differing(&old, &new, &|_| false),
        }
    }

    #[test]
    fn changes_of_one_object_are_told_as_one() {
        let changed = |old: u32, new: u32| input(Happened::Changed, json!({"a": old}), json!({"a": new}));
        let plain = |change| input(change, json!(0), json!(0));
        let both = changed(1, 2).then(&changed(2, 3)).unwrap();
        assert_eq!(both, changed(1, 3));
        assert_eq!(changed(1, 2).then(&changed(2, 1)), None, "it is again what it was");
        assert_eq!(plain(Happened::Added).then(&plain(Happened::Gone)), None);
        assert_eq!(
            plain(Happened::Added).then(&changed(1, 2)).unwrap(),
            plain(Happened::Added)
        );
        assert_eq!(
            plain(Happened::Gone).then(&plain(Happened::Added)).unwrap().change,
            Happened::Changed
        );
        assert_eq!(
            changed(1, 2).then(&plain(Happened::Gone)).unwrap().change,
            Happened::Gone
        );
    }
}
