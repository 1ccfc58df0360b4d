//! Why a job ran: a changed object, or another cause.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trueup_instance::Instances;
use trueup_sources::{Change, Object, ObjectRef};

use super::fields::{Fields, differing};
use super::pending::CAUSES_MAX;
use crate::lifecycle::quarantine::SetAside;
use crate::load::named;

/// Fields of objects without information about the desired state: managers, versions, and when a Node last reported
/// itself.
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
    /// A changed object that the key depends on: its own Service, another one with its UID, or a Node.
    Input(Input),
    /// The host started: it compares what is applied with the desired state.
    Start,
    /// The host took another configuration: it compares everything again.
    Reloaded,
    /// This host became active: another one may have left work half-done.
    Acts,
    /// The source is complete again, so missing objects are gone.
    Whole,
    /// The previous job failed.
    Retry {
        /// Consecutive failures.
        failures: u32,
        /// The last error.
        error: String,
    },
    /// A look without a change: a resync, or the same for one key.
    Resync {
        /// An operator asked for it. Earlier versions wrote no such field, and pass over it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_operator: bool,
    },
    /// The previous job was interrupted while it slept, and there is no other cause.
    Interrupted,
    /// A request, for pod addresses.
    Request {
        /// The client and the request.
        request: String,
    },
    /// An operation that the guest started has ended, for NEGs.
    Operation {
        /// Its number.
        operation: u64,
        /// Why it failed. `None` if it succeeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
    /// A timer that the guest had set fired.
    Timer,
    /// An operator set or cleared the error state, for NEGs.
    ErrorState {
        /// Whether it is set.
        on: bool,
    },
    /// Another version of the guest became active.
    Version {
        /// Name and version: `lbaas@2`.
        guest: String,
        /// `sha256:` and its digest.
        digest: String,
        /// Name and version of the previous one.
        before: String,
    },
    /// Its input was set aside and is tried again, because it or the guest changed.
    Released {
        /// When it was set aside, in milliseconds since 1970.
        since_ms: u64,
        /// The reason.
        error: String,
    },
}

impl Cause {
    /// Whether the job only continues what an earlier one began.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Self::Retry { .. } | Self::Interrupted)
    }

    /// The cause with which keys run again after a version change.
    pub(crate) fn became_active(before: &Instances, now: &Instances) -> Self {
        let (before, now) = (&before.program.guest, &now.program.guest);
        Self::Version {
            guest: named(now),
            digest: now.digest.to_string(),
            before: named(before),
        }
    }

    /// A short text for a trace.
    pub fn words(&self) -> String {
        match self {
            Self::Input(input) => format!("{} {}", input.object(), input.change),
            Self::Start => "start".to_owned(),
            Self::Reloaded => "configuration reloaded".to_owned(),
            Self::Acts => "this host acts now".to_owned(),
            Self::Whole => "source whole again".to_owned(),
            Self::Retry { failures, .. } => format!("retry after failure {failures}"),
            Self::Resync { by_operator: false } => "resync".to_owned(),
            Self::Resync { by_operator: true } => "an operator asked".to_owned(),
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

impl From<&SetAside> for Cause {
    /// The cause of a job that tries it again.
    fn from(entry: &SetAside) -> Self {
        Self::Released {
            since_ms: entry.at_ms,
            error: entry.error.clone(),
        }
    }
}

/// An object that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// `Service`, `Node`.
    pub kind: String,
    /// Empty for kinds without namespaces.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.uid`, if present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `metadata.resourceVersion`, if present: manifests have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The kind of the change.
    pub change: ChangeKind,
    /// The changed fields, if the object existed before.
    #[serde(flatten)]
    pub fields: Fields,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ChangeKind {
    /// It existed when the host started.
    Found,
    /// It is new.
    Added,
    /// It differs.
    Changed,
    /// It is gone.
    Gone,
}

/// A change, and the keys that it affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedObject<K> {
    /// The object that changed, and how.
    pub input: Input,
    /// The keys that it affects.
    pub keys: Vec<K>,
}

/// Nodes that changed together. They affect every key, so their number is limited before they are stored per key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedNodes {
    /// At most [`CAUSES_MAX`].
    pub(crate) inputs: Vec<Input>,
    /// The number of further Nodes.
    pub(crate) more: usize,
}

impl ChangedNodes {
    /// Adds a changed Node; `before` is its previous version.
    pub fn see(&mut self, change: &Change, before: Option<&Object>) {
        if self.inputs.len() < CAUSES_MAX {
            self.inputs.push(Input::of(change, before));
        } else {
            self.more += 1;
        }
    }
}

impl Input {
    /// Describes a change; `before` is the previous version of the object.
    pub fn of(change: &Change, before: Option<&Object>) -> Self {
        let ObjectRef { kind, namespace, name } = &change.reference;
        let metadata = change.now.as_ref().or(before).map(Object::metadata);
        let (happened, fields) = match (before, &change.now) {
            (_, None) => (ChangeKind::Gone, Fields::default()),
            (None, Some(_)) => (ChangeKind::Added, Fields::default()),
            (Some(before), Some(now)) => {
                let fields = differing(&json(before), &json(now), &|name| NOISE.contains(&name));
                (ChangeKind::Changed, fields)
            }
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

    /// Whether both are about the same object.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        (&self.kind, &self.namespace, &self.name) == (&other.kind, &other.namespace, &other.name)
    }

    /// Merges this change and a later one of the same object. `None` if the object is the same as before, or never
    /// existed.
    pub(super) fn then(&self, later: &Self) -> Option<Self> {
        let change = match (self.change, later.change) {
            (ChangeKind::Added, ChangeKind::Gone) => return None,
            (ChangeKind::Added | ChangeKind::Found, ChangeKind::Changed) => self.change,
            (ChangeKind::Gone, ChangeKind::Added) => ChangeKind::Changed,
            (_, change) => change,
        };
        let fields = match change {
            ChangeKind::Changed => self.fields.clone().then(later.fields.clone()),
            _ => Fields::default(),
        };
        // After a deletion and a new creation, the differences are unknown.
        let went = self.change == ChangeKind::Gone;
        (!fields.is_empty() || went || change != ChangeKind::Changed).then(|| Self {
            change,
            fields,
            ..later.clone()
        })
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

    fn input(change: ChangeKind, old: Value, new: Value) -> Input {
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
    fn an_operators_request_is_a_resync_to_readers_of_all_versions() {
        let cause = Cause::Resync { by_operator: true };
        let json = json!({"why": "resync", "by_operator": true});
        assert_eq!(serde_json::to_value(&cause).unwrap(), json);
        assert_eq!(cause.words(), "an operator asked");
        let earlier: Cause = serde_json::from_value(json!({"why": "resync"})).unwrap();
        assert_eq!(earlier, Cause::Resync { by_operator: false });
    }

    #[test]
    fn changes_of_one_object_are_told_as_one() {
        let changed = |old: u32, new: u32| input(ChangeKind::Changed, json!({"a": old}), json!({"a": new}));
        let plain = |change| input(change, json!(0), json!(0));
        let both = changed(1, 2).then(&changed(2, 3)).unwrap();
        assert_eq!(both, changed(1, 3));
        assert_eq!(changed(1, 2).then(&changed(2, 1)), None, "it is again what it was");
        assert_eq!(plain(ChangeKind::Added).then(&plain(ChangeKind::Gone)), None);
        assert_eq!(
            plain(ChangeKind::Added).then(&changed(1, 2)).unwrap(),
            plain(ChangeKind::Added)
        );
        assert_eq!(
            plain(ChangeKind::Gone).then(&plain(ChangeKind::Added)).unwrap().change,
            ChangeKind::Changed
        );
        assert_eq!(
            changed(1, 2).then(&plain(ChangeKind::Gone)).unwrap().change,
            ChangeKind::Gone
        );
    }
}
