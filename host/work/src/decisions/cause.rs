//! Why a job ran: a changed object, or another cause; and what changed for a key since its last job began.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trueup_instance::Instances;
use trueup_sources::{Change, Object, ObjectRef};

use super::fields::{Fields, differing};
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
        let before = &before.program.guest;
        let now = &now.program.guest;
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
            Self::Operation { operation, failure } => {
                let ended = failure.as_ref().map_or("succeeded", |_| "failed");
                format!("operation {operation} {ended}")
            }
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
        let since_ms = entry.at_ms;
        let error = entry.error.clone();
        Self::Released { since_ms, error }
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
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", self.kind, self.namespace, self.name)
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
        (!fields.is_empty() || self.change == ChangeKind::Gone || change != ChangeKind::Changed).then(|| Self {
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

/// How many causes of one job are kept. Further ones are counted: of two hundred Nodes that arrive at once, sixteen are
/// listed.
pub const CAUSES_MAX: usize = 16;

/// A cause and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedCause {
    /// In milliseconds since 1970.
    pub at_ms: u64,
    /// The cause.
    #[serde(flatten)]
    pub cause: Cause,
}

/// The causes of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Causes {
    pub(crate) causes: Vec<TimedCause>,
    pub(crate) more: usize,
}

/// Pending causes by key, for keys whose job has not begun.
#[derive(Debug)]
pub(crate) struct PendingCauses<K> {
    by_key: BTreeMap<K, Causes>,
    /// Whether a complete look at the source has happened: every later object is new.
    has_begun: bool,
    /// The cause of the first jobs.
    pub(crate) start: Cause,
}

impl<K: Ord + Clone> PendingCauses<K> {
    pub(crate) fn new(start: Cause) -> Self {
        Self {
            by_key: BTreeMap::new(),
            has_begun: false,
            start,
        }
    }

    /// Records a look at the source: the changes by key, the Nodes that changed for all keys, and all keys whose job
    /// will run. `whole`: everything was readable. At the start Nodes are left out, since there may be as many as keys.
    pub(crate) fn take_in(
        &mut self,
        now_ms: u64,
        (seen, nodes): (Vec<ChangedObject<K>>, ChangedNodes),
        affected: &BTreeSet<K>,
        whole: bool,
    ) {
        let is_first = !self.has_begun;
        self.has_begun |= whole;
        if is_first {
            for key in affected {
                self.because(key, now_ms, self.start.clone());
            }
        }
        let mut explained = BTreeSet::new();
        for ChangedObject { mut input, keys } in seen {
            if is_first && input.change == ChangeKind::Added {
                input.change = ChangeKind::Found;
            }
            for key in keys.into_iter().filter(|key| affected.contains(key)) {
                self.because(&key, now_ms, Cause::Input(input.clone()));
                explained.insert(key);
            }
        }
        if is_first {
            return;
        }
        for key in affected {
            for input in &nodes.inputs {
                self.because(key, now_ms, Cause::Input(input.clone()));
            }
            self.by_key.entry(key.clone()).or_default().more += nodes.more;
            if nodes.inputs.is_empty() && !explained.contains(key) {
                self.because(key, now_ms, Cause::Whole);
            }
        }
    }

    /// Adds a cause for a key.
    pub(crate) fn because(&mut self, key: &K, now_ms: u64, cause: Cause) {
        self.by_key.entry(key.clone()).or_default().add(now_ms, cause);
    }

    /// The job of a key begins. Takes all pending causes, or the fallback if there are none.
    pub(crate) fn begin(&mut self, key: &K, now_ms: u64, otherwise: impl FnOnce() -> Cause) -> Causes {
        let why = self.by_key.remove(key).filter(|why| !why.causes.is_empty());
        why.unwrap_or_else(|| {
            let mut why = Causes::default();
            why.add(now_ms, otherwise());
            why
        })
    }

    /// Forgets a key that is completely gone.
    pub(crate) fn forget(&mut self, key: &K) {
        self.by_key.remove(key);
    }
}

impl Causes {
    /// Adds a cause. A cause about an object that already has one is merged with it.
    pub(super) fn add(&mut self, at_ms: u64, cause: Cause) {
        if let Cause::Input(later) = &cause {
            let mut inputs = self.causes.iter_mut().enumerate();
            let earlier = inputs.find_map(|(at, timed)| match &mut timed.cause {
                Cause::Input(input) if input.is_of(later) => Some((at, input)),
                _ => None,
            });
            if let Some((at, earlier)) = earlier {
                match earlier.then(later) {
                    Some(both) => *earlier = both,
                    None => drop(self.causes.remove(at)),
                }
                return;
            }
        }
        if self.causes.iter().any(|timed| timed.cause == cause) {
            return;
        }
        if self.causes.len() >= CAUSES_MAX {
            self.more += 1;
        } else {
            self.causes.push(TimedCause { at_ms, cause });
        }
    }
}

/// A short text for a trace, of causes and the number of further ones.
pub(super) fn words(causes: &[TimedCause], more: usize) -> String {
    let mut words: Vec<String> = causes.iter().map(|timed| timed.cause.words()).collect();
    if more > 0 {
        words.push(format!("{more} more"));
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::Id as Key;

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

    fn key(name: &str) -> Key {
        Key {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    fn seen(name: &str, change: ChangeKind, keys: &[&str]) -> ChangedObject<Key> {
        ChangedObject {
            input: Input {
                kind: "Node".to_owned(),
                namespace: String::new(),
                name: name.to_owned(),
                uid: None,
                resource_version: None,
                change,
                fields: Fields::default(),
            },
            keys: keys.iter().map(|name| key(name)).collect(),
        }
    }

    fn of(seen: Vec<ChangedObject<Key>>) -> (Vec<ChangedObject<Key>>, ChangedNodes) {
        (seen, ChangedNodes::default())
    }

    #[test]
    fn nodes_are_told_to_all_whom_they_concern_but_not_at_the_start() {
        let mut pending = PendingCauses::new(Cause::Start);
        let all = BTreeSet::from([key("a"), key("b")]);
        let nodes = |count: usize, more| ChangedNodes {
            inputs: (0..count)
                .map(|at| seen(&format!("n{at}"), ChangeKind::Gone, &[]).input)
                .collect(),
            more,
        };
        pending.take_in(1, (Vec::new(), nodes(2, 0)), &all, true);
        assert_eq!(begin(&mut pending, "a"), "start");
        pending.take_in(2, (Vec::new(), nodes(2, 7)), &BTreeSet::from([key("a")]), true);
        assert_eq!(begin(&mut pending, "a"), "Node n0 gone; Node n1 gone; 7 more");
        assert_eq!(begin(&mut pending, "b"), "start");
    }

    fn begin(pending: &mut PendingCauses<Key>, name: &str) -> String {
        let why = pending.begin(&key(name), 9, || Cause::Resync { by_operator: false });
        words(&why.causes, why.more)
    }

    #[test]
    fn what_is_there_at_the_start_is_found_and_what_comes_later_is_added() {
        let mut pending = PendingCauses::new(Cause::Start);
        let all = BTreeSet::from([key("a"), key("b")]);
        pending.take_in(1, of(vec![seen("n1", ChangeKind::Added, &["a"])]), &all, false);
        pending.take_in(
            2,
            of(vec![seen("n2", ChangeKind::Added, &["a"])]),
            &BTreeSet::from([key("a")]),
            true,
        );
        assert_eq!(begin(&mut pending, "a"), "start; Node n1 found; Node n2 found");
        assert_eq!(begin(&mut pending, "b"), "start");
        pending.take_in(
            3,
            of(vec![seen("n3", ChangeKind::Added, &["a", "b"])]),
            &BTreeSet::from([key("a")]),
            true,
        );
        assert_eq!(begin(&mut pending, "a"), "Node n3 added");
        assert_eq!(begin(&mut pending, "b"), "resync", "it is not affected");
        pending.take_in(4, of(Vec::new()), &BTreeSet::from([key("a")]), true);
        assert_eq!(begin(&mut pending, "a"), "source whole again");
    }

    #[test]
    fn many_reasons_are_counted_and_one_that_went_away_is_none() {
        let mut pending = PendingCauses::new(Cause::Start);
        let affected = BTreeSet::from([key("a")]);
        pending.take_in(1, of(Vec::new()), &BTreeSet::new(), true);
        let many = (0..CAUSES_MAX + 3).map(|at| seen(&format!("n{at:02}"), ChangeKind::Added, &["a"]));
        pending.take_in(2, of(many.collect()), &affected, true);
        let why = pending.begin(&key("a"), 9, || Cause::Resync { by_operator: false });
        assert_eq!((why.causes.len(), why.more), (CAUSES_MAX, 3));

        pending.take_in(3, of(vec![seen("n", ChangeKind::Added, &["a"])]), &affected, true);
        pending.take_in(4, of(vec![seen("n", ChangeKind::Gone, &["a"])]), &affected, true);
        assert_eq!(begin(&mut pending, "a"), "resync");
        pending.because(&key("a"), 5, Cause::Start);
        pending.forget(&key("a"));
        assert_eq!(begin(&mut pending, "a"), "resync");
    }
}
