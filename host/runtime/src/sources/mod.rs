//! What should be, as sources deliver it: Kubernetes objects, and the changes between one look and the next.
//!
//! The model alone: where objects come from is the business of the modules below, what they mean that of the adapters
//! in `guests/`. Objects are shared, so that a snapshot or a change is cheap to hand on. Apart from them stands the list
//! of this node's network interfaces, in `enis`: those are no objects of Kubernetes.
//!
//! ```text
//! manifests ---+-> batches of changes -> Objects -> adapter -> desired
//! API server --+
//! ```

pub mod enis;
pub mod kubernetes;
pub mod manifests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::mpsc;

/// The kinds of objects that adapters read. A further kind is a variant here, one of [`Object`], and its lines in the
/// matches of this file, of `manifests/documents.rs` and of `kubernetes/decode.rs`; the compiler names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Some of the addresses behind a Service.
    EndpointSlice,
    /// A machine of the cluster; it has no namespace.
    Node,
    /// What runs, with an address of its own.
    Pod,
    /// A name for Pods, maybe reached through a load balancer.
    Service,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::EndpointSlice, Self::Node, Self::Pod, Self::Service];

    /// As in a manifest's `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::EndpointSlice => "EndpointSlice",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Service => "Service",
        }
    }

    /// As in a manifest's `apiVersion`: the version that is read here.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::Node | Self::Pod | Self::Service => "v1",
        }
    }

    /// As in the API's paths and in rules of access: `services`.
    pub fn resource(self) -> &'static str {
        match self {
            Self::EndpointSlice => "endpointslices",
            Self::Node => "nodes",
            Self::Pod => "pods",
            Self::Service => "services",
        }
    }

    /// Whether its objects live in namespaces.
    pub fn has_namespace(self) -> bool {
        match self {
            Self::Node => false,
            Self::EndpointSlice | Self::Pod | Self::Service => true,
        }
    }
}

/// Which object: one kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for kinds without.
    pub namespace: String,
    /// Its name.
    pub name: String,
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

/// One object. Where the manifest names no namespace, it is in `default`.
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
        let metadata = self.metadata();
        let kind = self.kind();
        let namespace = match &metadata.namespace {
            _ if !kind.has_namespace() => String::new(),
            Some(namespace) if !namespace.is_empty() => namespace.clone(),
            _ => "default".to_owned(),
        };
        ObjectRef {
            kind,
            namespace,
            name: metadata.name.clone().unwrap_or_default(),
        }
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

    /// Equal in every field; the same shared object is found equal without a look at the fields.
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

/// An object is new, different, or gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Which object.
    pub reference: ObjectRef,
    /// What it is now; none where it is gone.
    pub now: Option<Object>,
}

/// What could not be read, or is not used. `FILE:LINE: reason` or `KIND NAMESPACE/NAME: reason` on one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub at: Place,
    /// What is wrong and what it must be.
    pub reason: String,
    /// Objects may be missing because of it: while one such problem stands, an object that is not there may not be gone.
    pub hides_objects: bool,
}

/// Where a [`Problem`] is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a file or folder.
    File {
        /// Which.
        file: PathBuf,
        /// Where in it; none where it is about all of it.
        line: Option<u64>,
    },
    /// In an object of the cluster.
    Object(ObjectRef),
    /// In several objects of the cluster, which are not named one by one.
    Cluster,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Place::File { file, line } => {
                write!(f, "{}:", file.display())?;
                if let Some(line) = line {
                    write!(f, "{line}:")?;
                }
            }
            Place::Object(reference) => write!(f, "{reference}:")?,
            Place::Cluster => f.write_str("the cluster:")?,
        }
        write!(f, " {}", self.reason)
    }
}

/// What changed in a source since the batch before; the first holds everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// What is new or different, then what is gone.
    pub changes: Vec<Change>,
    /// All that stand now, in order of place.
    pub problems: Vec<Problem>,
    /// Those of `problems` that did not stand before: for the log.
    pub new_problems: Vec<Problem>,
    /// Everything was read and nothing hides an object: an object that no batch has brought is not there, and what is
    /// left of it from before may be taken away.
    pub complete: bool,
    /// Objects that are there and can't be read: of these, what a batch brought before stands, or nothing is known.
    pub unreadable: Arc<BTreeSet<ObjectRef>>,
}

/// What a source says as it changes. Watching a folder ends when this is dropped.
#[derive(Debug)]
pub enum Batches {
    /// Of a folder of manifests.
    Manifests(mpsc::Receiver<Batch>),
    /// Of a cluster.
    Kubernetes(kubernetes::Subscription),
}

impl Batches {
    /// The next batch, when there is one; none: the source can't be watched any more. Nothing is lost where this is
    /// dropped before it answers.
    pub async fn recv(&mut self) -> Option<Batch> {
        match self {
            Self::Manifests(batches) => batches.recv().await,
            Self::Kubernetes(subscription) => Some(subscription.next().await),
        }
    }
}

/// When a source that shows nothing is taken for one that is not there (a volume that is not mounted, a checkout that failed),
/// and not for a wish: one rule for every guest.
///
/// Of a folder, that is always so. Of a cluster it is so until something of it was seen: from then on, what goes while it is
/// watched goes rightly.
#[derive(Clone, Debug, Default)]
pub struct Showing {
    is_cluster: bool,
    seen: BTreeSet<Kind>,
}

impl Showing {
    /// Of a source that has shown nothing yet.
    pub fn new(is_cluster: bool) -> Self {
        Self {
            is_cluster,
            seen: BTreeSet::new(),
        }
    }

    /// Whether the source is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Takes in what a look shows.
    pub fn see(&mut self, change: &Change) {
        if change.now.is_some() {
            self.seen.insert(change.reference.kind);
        }
    }

    /// Whether a source that shows so many objects hides them all.
    pub fn hides_all(&self, shown: usize) -> bool {
        shown == 0 && (!self.is_cluster || self.seen.is_empty())
    }

    /// Whether a source that shows so many objects of a kind hides all of these.
    pub fn hides(&self, kind: Kind, shown: usize) -> bool {
        shown == 0 && !(self.is_cluster && self.seen.contains(&kind))
    }
}

/// All objects of a source at one moment, in order of kind, namespace and name.
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
        let reference = ObjectRef {
            kind: Kind::Service,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        match self.get(&reference)? {
            Object::Service(service) => Some(service),
            _ => None,
        }
    }

    /// All Services, in order of namespace and name.
    pub fn services(&self) -> impl Iterator<Item = (&ObjectRef, &Service)> {
        self.of_kind(Kind::Service)
            .filter_map(|(reference, object)| match object {
                Object::Service(service) => Some((reference, service.as_ref())),
                _ => None,
            })
    }

    /// All Nodes, in order of name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.of_kind(Kind::Node).filter_map(|(_, object)| match object {
            Object::Node(node) => Some(node.as_ref()),
            _ => None,
        })
    }

    /// All objects, in order of kind, namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectRef, &Object)> {
        self.by_reference.iter()
    }

    /// How many objects.
    pub fn len(&self) -> usize {
        self.by_reference.len()
    }

    /// There is no object.
    pub fn is_empty(&self) -> bool {
        self.by_reference.is_empty()
    }

    /// How many objects of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    /// How many objects of each kind, those of which there are none included.
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        Kind::ALL
            .into_iter()
            .map(|kind| (kind.name(), self.count(kind)))
            .collect()
    }

    /// Puts an object in, in place of one of the same kind, namespace and name, which it answers.
    pub fn insert(&mut self, object: Object) -> Option<Object> {
        self.put(object.reference(), object)
    }

    fn put(&mut self, reference: ObjectRef, object: Object) -> Option<Object> {
        let kind = reference.kind;
        let before = self.by_reference.insert(reference, object);
        if before.is_none() {
            *self.counts.entry(kind).or_default() += 1;
        }
        before
    }

    fn remove(&mut self, reference: &ObjectRef) -> Option<Object> {
        let before = self.by_reference.remove(reference)?;
        if let Some(count) = self.counts.get_mut(&reference.kind) {
            *count -= 1;
            // Equal are those that hold the same, whatever they once held.
            if *count == 0 {
                self.counts.remove(&reference.kind);
            }
        }
        Some(before)
    }

    /// Makes a change true here; answers what was there before.
    pub fn apply(&mut self, change: &Change) -> Option<Object> {
        match &change.now {
            Some(object) => self.put(change.reference.clone(), object.clone()),
            None => self.remove(&change.reference),
        }
    }

    /// The changes that lead from `self` to `later`: what is new or different first, then what is gone, so that
    /// whoever acts on them in order has what it needs before it takes away.
    pub fn changes_to(&self, later: &Self) -> Vec<Change> {
        let new = later
            .iter()
            .filter(|(reference, object)| !self.get(reference).is_some_and(|was| was.same_as(object)));
        let gone = self
            .by_reference
            .keys()
            .filter(|reference| !later.by_reference.contains_key(reference));
        new.map(|(reference, object)| Change {
            reference: reference.clone(),
            now: Some(object.clone()),
        })
        .chain(gone.map(|reference| Change {
            reference: reference.clone(),
            now: None,
        }))
        .collect()
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&ObjectRef, &Object)> {
        let first = ObjectRef {
            kind,
            namespace: String::new(),
            name: String::new(),
        };
        self.by_reference
            .range(first..)
            .take_while(move |(reference, _)| reference.kind == kind)
    }
}

impl FromIterator<Object> for Objects {
    /// Of two objects of one kind, namespace and name, the later one stays.
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
