//! Kubernetes objects, and what changed between two looks at them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The kinds of objects that adapters read. A new kind needs a variant here and in [`Object`], and arms in the matches
/// of this file, of `manifests/documents.rs` and of `kubernetes/decode.rs`; the compiler finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Some of the addresses behind a Service.
    EndpointSlice,
    /// A machine of the cluster; it has no namespace.
    Node,
    /// A workload with its own address.
    Pod,
    /// A name for Pods, optionally reachable through a load balancer.
    Service,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::EndpointSlice, Self::Node, Self::Pod, Self::Service];

    /// The name in a manifest, the `apiVersion`, the name in API paths, and whether it belongs to namespaces.
    const fn facts(self) -> (&'static str, &'static str, &'static str, bool) {
        match self {
            Self::EndpointSlice => ("EndpointSlice", "discovery.k8s.io/v1", "endpointslices", true),
            Self::Node => ("Node", "v1", "nodes", false),
            Self::Pod => ("Pod", "v1", "pods", true),
            Self::Service => ("Service", "v1", "services", true),
        }
    }

    /// The name in a manifest's `kind`.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// The supported `apiVersion` in a manifest.
    pub fn api_version(self) -> &'static str {
        self.facts().1
    }

    /// The name in API paths and access rules: `services`.
    pub fn resource(self) -> &'static str {
        self.facts().2
    }

    /// Whether its objects belong to namespaces.
    pub fn has_namespace(self) -> bool {
        self.facts().3
    }
}

/// The identity of an object: its kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace. Empty for kinds without namespaces.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// The identity of these three.
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectRef {
    /// `Service default/web`, `Node node-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind.name())?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// One object. If the manifest names no namespace, it is in `default`.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// An EndpointSlice.
    EndpointSlice(Arc<EndpointSlice>),
    /// A Node.
    Node(Arc<Node>),
    /// A Pod.
    Pod(Arc<Pod>),
    /// A Service.
    Service(Arc<Service>),
}

impl Object {
    /// Its kind, namespace and name.
    pub fn reference(&self) -> ObjectRef {
        let kind = self.kind();
        let metadata = self.metadata();
        let namespace = match &metadata.namespace {
            _ if !kind.has_namespace() => String::new(),
            Some(namespace) if !namespace.is_empty() => namespace.clone(),
            _ => "default".to_owned(),
        };
        ObjectRef::new(kind, namespace, metadata.name.clone().unwrap_or_default())
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::EndpointSlice(_) => Kind::EndpointSlice,
            Self::Node(_) => Kind::Node,
            Self::Pod(_) => Kind::Pod,
            Self::Service(_) => Kind::Service,
        }
    }

    /// Its metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::EndpointSlice(slice) => &slice.metadata,
            Self::Node(node) => &node.metadata,
            Self::Pod(pod) => &pod.metadata,
            Self::Service(service) => &service.metadata,
        }
    }

    /// Whether all fields are equal. Two references to the same shared object are equal without a comparison.
    pub fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::EndpointSlice(one), Self::EndpointSlice(other)) => Arc::ptr_eq(one, other) || one == other,
            (Self::Node(one), Self::Node(other)) => Arc::ptr_eq(one, other) || one == other,
            (Self::Pod(one), Self::Pod(other)) => Arc::ptr_eq(one, other) || one == other,
            (Self::Service(one), Self::Service(other)) => Arc::ptr_eq(one, other) || one == other,
            _ => false,
        }
    }
}

/// A new, changed or deleted object.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The object.
    pub reference: ObjectRef,
    /// Its new version. `None` if it is gone.
    pub now: Option<Object>,
}

/// Something unreadable or unused. `FILE:LINE: reason` or `KIND NAMESPACE/NAME: reason` on one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where it is.
    pub at: Location,
    /// What is wrong, and what is valid.
    pub reason: String,
    /// Whether it may hide objects: while such a problem exists, a missing object may not be gone.
    pub hides_objects: bool,
}

/// Where a [`Problem`] is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// In a file or folder.
    File {
        /// The file or folder.
        file: PathBuf,
        /// The line. `None` if it concerns the whole file.
        line: Option<u64>,
    },
    /// In an object in the cluster.
    Object(ObjectRef),
    /// In several objects in the cluster, which are not named.
    Cluster,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Location::File { file, line: None } => write!(f, "{}:", file.display())?,
            Location::File { file, line: Some(line) } => write!(f, "{}:{line}:", file.display())?,
            Location::Object(reference) => write!(f, "{reference}:")?,
            Location::Cluster => f.write_str("the cluster:")?,
        }
        write!(f, " {}", self.reason)
    }
}

/// The changes in a source since the previous batch. The first batch contains everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// New and changed objects, then deleted ones.
    pub changes: Vec<Change>,
    /// All current problems, sorted by place.
    pub problems: Vec<Problem>,
    /// The new ones among `problems`, for the log.
    pub new_problems: Vec<Problem>,
    /// Whether everything was read and nothing hides an object: then an object that no batch contained does not exist,
    /// and its remains may be removed.
    pub complete: bool,
    /// Objects that exist but are unreadable: their version from an earlier batch stays, if there was one.
    pub unreadable: Arc<BTreeSet<ObjectRef>>,
}

/// Decides when an empty source counts as unavailable (an unmounted volume, a failed checkout) and not as desired
/// state. The rule is the same for every guest.
///
/// An empty folder always counts as unavailable. An empty cluster does so until an object of it was seen: from then on,
/// observed deletions are genuine.
#[derive(Clone, Debug, Default)]
pub struct Showing {
    is_cluster: bool,
    seen: BTreeSet<Kind>,
}

impl Showing {
    /// For a source that has shown nothing yet.
    pub fn new(is_cluster: bool) -> Self {
        let seen = BTreeSet::new();
        Self { is_cluster, seen }
    }

    /// Whether the source is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Records an observed change.
    pub fn see(&mut self, change: &Change) {
        if change.now.is_some() {
            self.seen.insert(change.reference.kind);
        }
    }

    /// Whether a source with `shown` objects counts as unavailable.
    pub fn hides_all(&self, shown: usize) -> bool {
        shown == 0 && (!self.is_cluster || self.seen.is_empty())
    }

    /// Whether a source with `shown` objects of a kind hides all objects of that kind.
    pub fn hides(&self, kind: Kind, shown: usize) -> bool {
        shown == 0 && !(self.is_cluster && self.seen.contains(&kind))
    }
}

/// All objects of a source at one moment, sorted by kind, namespace and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    by_reference: BTreeMap<ObjectRef, Object>,
    counts: BTreeMap<Kind, usize>,
}

impl Objects {
    /// One object.
    pub fn get(&self, reference: &ObjectRef) -> Option<&Object> {
        self.by_reference.get(reference)
    }

    /// One Service.
    pub fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        match self.get(&ObjectRef::new(Kind::Service, namespace, name))? {
            Object::Service(service) => Some(service),
            _ => None,
        }
    }

    /// All Services, sorted by namespace and name.
    pub fn services(&self) -> impl Iterator<Item = (&ObjectRef, &Service)> {
        let services = self.of_kind(Kind::Service);
        services.filter_map(|(reference, object)| match object {
            Object::Service(service) => Some((reference, service.as_ref())),
            _ => None,
        })
    }

    /// All Nodes, sorted by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.of_kind(Kind::Node).filter_map(|(_, object)| match object {
            Object::Node(node) => Some(node.as_ref()),
            _ => None,
        })
    }

    /// All objects, sorted by kind, namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectRef, &Object)> {
        self.by_reference.iter()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.by_reference.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.by_reference.is_empty()
    }

    /// The number of objects of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    /// The number of objects of each kind, including zeros.
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        Kind::ALL.map(|kind| (kind.name(), self.count(kind))).into()
    }

    /// Inserts an object. Returns the one that it replaces.
    pub fn insert(&mut self, object: Object) -> Option<Object> {
        let kind = object.kind();
        let before = self.by_reference.insert(object.reference(), object);
        if before.is_none() {
            *self.counts.entry(kind).or_default() += 1;
        }
        before
    }

    fn remove(&mut self, reference: &ObjectRef) -> Option<Object> {
        let before = self.by_reference.remove(reference)?;
        // Remove zeros, so that equality depends only on the current content.
        match self.counts.get_mut(&reference.kind) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.counts.remove(&reference.kind);
            }
        }
        Some(before)
    }

    /// Applies a change. Returns the previous version of the object.
    pub fn apply(&mut self, change: &Change) -> Option<Object> {
        match &change.now {
            Some(object) => self.insert(object.clone()),
            None => self.remove(&change.reference),
        }
    }

    /// The changes that lead from `self` to `later`: new and changed objects first, then deleted ones, so that a
    /// consumer has what it needs before it removes anything.
    pub fn changes_to(&self, later: &Self) -> Vec<Change> {
        let is_same = |reference, object| self.get(reference).is_some_and(|was| was.same_as(object));
        let new = later.iter().filter(|(reference, object)| !is_same(reference, object));
        let all = self.by_reference.keys();
        let gone = all.filter(|reference| !later.by_reference.contains_key(reference));
        let change = |reference: &ObjectRef, now| Change {
            reference: reference.clone(),
            now,
        };
        let new = new.map(|(reference, object)| change(reference, Some(object.clone())));
        new.chain(gone.map(|reference| change(reference, None))).collect()
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&ObjectRef, &Object)> {
        let from_kind = self.by_reference.range(ObjectRef::new(kind, "", "")..);
        from_kind.take_while(move |(reference, _)| reference.kind == kind)
    }
}

impl FromIterator<Object> for Objects {
    /// Of two objects with the same kind, namespace and name, the later one wins.
    fn from_iter<I: IntoIterator<Item = Object>>(objects: I) -> Self {
        let mut all = Self::default();
        for object in objects {
            all.insert(object);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: Option<&str>, name: &str, ip: Option<&str>) -> Object {
        let mut service = Service::default();
        service.metadata.namespace = namespace.map(str::to_owned);
        service.metadata.name = Some(name.to_owned());
        service.spec.get_or_insert_default().load_balancer_ip = ip.map(str::to_owned);
        Object::Service(Arc::new(service))
    }

    fn node(name: &str) -> Object {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.namespace = Some("ignored".to_owned());
        Object::Node(Arc::new(node))
    }

    #[test]
    fn each_kind_is_listed_apart_and_in_order() {
        let objects: Objects = [
            service(None, "web", None),
            node("n2"),
            service(Some("apps"), "web", None),
            node("n1"),
        ]
        .into_iter()
        .collect();
        let named: Vec<String> = objects.iter().map(|(reference, _)| reference.to_string()).collect();
        assert_eq!(named, ["Node n1", "Node n2", "Service apps/web", "Service default/web"]);
        assert_eq!((objects.nodes().count(), objects.services().count()), (2, 2));
        assert_eq!(
            objects.counts(),
            [("EndpointSlice", 0), ("Node", 2), ("Pod", 0), ("Service", 2)]
        );
        assert!(objects.service("default", "web").is_some());
        assert!(objects.service("other", "web").is_none());
    }

    #[test]
    fn changes_lead_from_one_snapshot_to_the_other() {
        let before: Objects = [
            service(None, "gone", None),
            service(None, "same", None),
            service(None, "moved", None),
        ]
        .into_iter()
        .collect();
        let after: Objects = [
            service(None, "same", None),
            service(None, "moved", Some("192.0.2.1")),
            node("new"),
        ]
        .into_iter()
        .collect();
        let changes = before.changes_to(&after);
        let said: Vec<(String, bool)> = changes
            .iter()
            .map(|change| (change.reference.to_string(), change.now.is_some()))
            .collect();
        let expected = [
            ("Node new", true),
            ("Service default/moved", true),
            ("Service default/gone", false),
        ];
        assert_eq!(said, expected.map(|(name, there)| (name.to_owned(), there)));

        let mut applied = before;
        for change in &changes {
            applied.apply(change);
        }
        assert_eq!(applied, after);
        assert_eq!(applied.changes_to(&after), []);
    }
}
