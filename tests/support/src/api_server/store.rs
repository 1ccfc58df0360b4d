//! The objects, one version counter for all of them, and the changes for watches.
//!
//! Knows neither the meaning of kinds nor HTTP: `write.rs` decides what may be written before it gets here.
//!
//! ```text
//! write -> objects (now) + history (the last changes, each with what was there before)
//!                             |-> watches, from any version in it
//!                             '-> lists as they were at any version in it
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::Kind;

/// How many changes are kept: at 200 a second, 80 seconds. A client that is further behind must list again.
pub(super) const HISTORY_MAX: usize = 16_384;

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    group: &'static str,
    plural: &'static str,
    /// Empty for kinds without a namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Key {
    /// The key of an object; an Event has one key, whichever group the request names.
    pub fn new(kind: &Kind, namespace: &str, name: &str) -> Self {
        let stored = kind.stored();
        Self {
            group: stored.group,
            plural: stored.plural,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Whether the object is of this kind.
    pub fn is(&self, kind: &Kind) -> bool {
        let stored = kind.stored();
        self.group == stored.group && self.plural == stored.plural
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It is new.
    Added,
    /// It is another one now.
    Modified,
    /// It is deleted.
    Deleted,
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version that the change made.
    pub version: u64,
    /// The changed object.
    pub key: Key,
    /// The kind of the change.
    pub happened: Happened,
    /// The object after the change; of a deleted one, its last state with the version of its end.
    pub object: Arc<Value>,
    /// The object before the change.
    pub before: Option<Arc<Value>>,
}

/// All objects.
#[derive(Debug)]
pub(super) struct Store {
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Change>,
    version: u64,
    /// Changes up to this version are forgotten.
    forgotten: u64,
    uids: u64,
    addresses: u32,
    node_ports: BTreeSet<u64>,
    /// Each manager's last configuration in a server-side apply, until the object is deleted.
    pub applied: BTreeMap<(Key, String), Value>,
    /// Objects under deletion whose dependents must stay.
    pub orphaning: BTreeSet<Key>,
}

impl Store {
    /// An empty store at version 1.
    pub(super) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            version: 1,
            forgotten: 0,
            uids: 0,
            addresses: 0,
            node_ports: BTreeSet::new(),
            applied: BTreeMap::new(),
            orphaning: BTreeSet::new(),
        }
    }

    /// The version of the last change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Changes up to this version are no longer available.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The object, if it exists.
    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// All objects of a kind, of one namespace or of all, by namespace and name.
    pub(super) fn list(&self, kind: &Kind, namespace: Option<&str>) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let first = Key::new(kind, namespace.unwrap_or_default(), "");
        self.objects.range(first.clone()..).take_while(move |(key, _)| {
            key.group == first.group
                && key.plural == first.plural
                && (first.namespace.is_empty() || key.namespace == first.namespace)
        })
    }

    /// The keys of everything in a namespace.
    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Key> {
        self.objects
            .keys()
            .filter(|key| key.namespace == namespace)
            .cloned()
            .collect()
    }

    /// The keys of everything that names `uid` as an owner.
    pub(super) fn owned_by(&self, uid: &str) -> Vec<Key> {
        let owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
        };
        self.objects
            .iter()
            .filter(|(_, object)| owned(object))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// The objects of an earlier version: the present ones with every later change undone. `None` if that is forgotten.
    pub(super) fn list_at(&self, kind: &Kind, namespace: Option<&str>, version: u64) -> Option<Vec<(Key, Arc<Value>)>> {
        if version < self.forgotten {
            return None;
        }
        let mut then: BTreeMap<&Key, &Arc<Value>> = self.list(kind, namespace).collect();
        for change in self.history.iter().rev().take_while(|change| change.version > version) {
            if !change.key.is(kind) || namespace.is_some_and(|namespace| namespace != change.key.namespace) {
                continue;
            }
            match &change.before {
                Some(before) => then.insert(&change.key, before),
                None => then.remove(&change.key),
            };
        }
        Some(
            then.into_iter()
                .map(|(key, object)| (key.clone(), Arc::clone(object)))
                .collect(),
        )
    }

    /// The changes after a version, oldest first. `None` if some of them are forgotten.
    pub(super) fn changes_after(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        if version < self.forgotten {
            return None;
        }
        let first = self.history.partition_point(|change| change.version <= version);
        Some(self.history.range(first..))
    }

    /// Stores an object, new or changed, under the next version.
    pub(super) fn put(&mut self, key: Key, object: Value) -> Arc<Value> {
        let before = self.objects.get(&key).cloned();
        let happened = if before.is_some() {
            Happened::Modified
        } else {
            Happened::Added
        };
        let object = self.next_version(object);
        self.give_back_ports(before.as_deref());
        self.node_ports.extend(node_ports(&object));
        self.objects.insert(key.clone(), Arc::clone(&object));
        self.remember(key, happened, &object, before);
        object
    }

    /// Removes an object, with the change that ended it if there is one. Returns the state for watches.
    pub(super) fn remove(&mut self, key: &Key, last: Option<Value>) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.applied.retain(|(of, _), _| of != key);
        self.orphaning.remove(key);
        self.give_back_ports(Some(&before));
        let object = self.next_version(last.unwrap_or_else(|| Value::clone(&before)));
        self.remember(key.clone(), Happened::Deleted, &object, Some(before));
        Some(object)
    }

    fn next_version(&mut self, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Arc::new(object)
    }

    fn remember(&mut self, key: Key, happened: Happened, object: &Arc<Value>, before: Option<Arc<Value>>) {
        self.history.push_back(Change {
            version: self.version,
            key,
            happened,
            object: Arc::clone(object),
            before,
        });
        if self.history.len() > HISTORY_MAX
            && let Some(oldest) = self.history.pop_front()
        {
            self.forgotten = oldest.version;
        }
    }

    /// Forgets all changes, and moves one version on: every version that a client holds is now too old.
    pub(super) fn forget(&mut self) {
        self.version += 1;
        self.forgotten = self.version;
        self.history.clear();
    }

    /// A uid that no object of this server has or had.
    pub(super) fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("7e57ab1e-0000-4000-8000-{:012x}", self.uids)
    }

    /// The next address of the Services' network, 10.96.0.0/12, which is kubeadm's. Addresses are never reused.
    pub(super) fn next_cluster_ip(&mut self) -> String {
        self.addresses += 1;
        // The first ten belong to the cluster itself, such as its DNS.
        let number = self.addresses + 10;
        format!(
            "10.{}.{}.{}",
            96 + (number >> 16) % 16,
            (number >> 8) & 0xff,
            number & 0xff
        )
    }

    /// A free node port; `None` if all are taken.
    pub(super) fn next_node_port(&self, besides: &BTreeSet<u64>) -> Option<u64> {
        NODE_PORTS
            .clone()
            .find(|port| !self.node_ports.contains(port) && !besides.contains(port))
    }

    /// Whether a Service has this node port.
    pub(super) fn is_node_port_taken(&self, port: u64) -> bool {
        self.node_ports.contains(&port)
    }

    fn give_back_ports(&mut self, object: Option<&Value>) {
        for port in object.map(node_ports).into_iter().flatten() {
            self.node_ports.remove(&port);
        }
    }
}

/// The default of `--service-node-port-range`.
pub(super) const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

/// The node ports that a Service holds, including its port for health checks; empty for other kinds.
pub(super) fn node_ports(object: &Value) -> BTreeSet<u64> {
    if object["kind"] != "Service" {
        return BTreeSet::new();
    }
    let spec = &object["spec"];
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ports = ports.iter().filter_map(|port| port["nodePort"].as_u64());
    ports
        .chain(spec["healthCheckNodePort"].as_u64())
        .filter(|port| *port != 0)
        .collect()
}
