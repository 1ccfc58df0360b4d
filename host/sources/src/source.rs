//! Which source a host reads, and whether what it does not show is gone.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::kubernetes;
use crate::object::{Batch, Change, Kind, ObjectRef, Showing};

/// Where the desired state comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder of Kubernetes YAML.
    Manifests(PathBuf),
    /// A cluster.
    Kubernetes(kubernetes::Settings),
}

impl Source {
    /// Its name in configuration and status.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Manifests(_) => "manifests",
            Self::Kubernetes(_) => "kubernetes",
        }
    }

    /// Whether it is a cluster: the API server's answer is final.
    pub fn is_cluster(&self) -> bool {
        matches!(self, Self::Kubernetes(_))
    }

    /// The source, as in `a problem in the manifests`.
    pub fn place(&self) -> &'static str {
        match self {
            Self::Manifests(_) => "the manifests",
            Self::Kubernetes(_) => "the cluster",
        }
    }

    /// What may hide an object, so that objects without a source object are kept, in the words of this source.
    pub fn hidden(&self) -> &'static str {
        match self {
            Self::Manifests(_) => "a manifest can't be read, or the folder has none",
            Self::Kubernetes(_) => "not everything in the cluster is known",
        }
    }
}

/// The batches of a source. Dropping this ends the watch of a folder.
pub enum Batches {
    /// From a folder of manifests.
    Manifests(mpsc::Receiver<Batch>),
    /// From a cluster.
    Kubernetes(kubernetes::Subscription),
}

impl Batches {
    /// The next batch, when there is one. `None` if the source cannot be watched any more. Cancel-safe: dropping the
    /// future loses nothing.
    pub async fn recv(&mut self) -> Option<Batch> {
        match self {
            Self::Manifests(batches) => batches.recv().await,
            Self::Kubernetes(subscription) => Some(subscription.next().await),
        }
    }
}

/// Decides, look by look, whether an object that a source does not show is gone: everything was read, the source would
/// show the object, and a source that is empty or has no Node is not one that failed (see [`Showing`]).
#[derive(Clone, Debug, Default)]
pub struct Completeness {
    showing: Showing,
    /// The namespaces that the source shows. Empty: all of them.
    namespaces: BTreeSet<String>,
    unreadable: Arc<BTreeSet<ObjectRef>>,
    complete: bool,
    completed: bool,
}

/// What a look does not show, although there is something to lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// The source holds no object at all.
    pub all: bool,
    /// The source holds objects, but no Node.
    pub nodes: bool,
}

impl Completeness {
    /// For a source that has shown nothing yet.
    pub fn of(source: &Source) -> Self {
        let namespaces = match source {
            Source::Manifests(_) => BTreeSet::new(),
            Source::Kubernetes(settings) => settings.namespaces.iter().cloned().collect(),
        };
        Self {
            showing: Showing::new(source.is_cluster()),
            namespaces,
            ..Self::default()
        }
    }

    /// Takes in a change of the look.
    pub fn see(&mut self, change: &Change) {
        self.showing.see(change);
    }

    /// Takes in which objects exist but can't be read. Returns those for which that changed.
    pub fn take_in_unreadable(&mut self, unreadable: &Arc<BTreeSet<ObjectRef>>) -> Vec<ObjectRef> {
        if Arc::ptr_eq(&self.unreadable, unreadable) {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.unreadable, Arc::clone(unreadable));
        before.symmetric_difference(unreadable).cloned().collect()
    }

    /// Ends a look. `complete`: everything was read. `objects` and `nodes`: how many the source shows; `None` if
    /// nothing is lost with them.
    pub fn end_look(&mut self, complete: bool, objects: Option<usize>, nodes: Option<usize>) -> Missing {
        let all = objects.is_some_and(|shown| self.showing.hides_all(shown));
        let nodes = !all && nodes.is_some_and(|shown| self.showing.hides(Kind::Node, shown));
        let complete = complete && !all && !nodes;
        self.completed = complete && !self.complete;
        self.complete = complete;
        Missing { all, nodes }
    }

    /// Whether the last look was complete.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the last look was complete and the one before was not: what is missing is gone since that look.
    pub fn completed(&self) -> bool {
        self.completed
    }

    /// Whether the source is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.showing.is_cluster()
    }

    /// Whether the source shows the objects of a namespace.
    pub fn shows(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace)
    }

    /// The objects that exist but can't be read.
    pub fn unreadable(&self) -> &BTreeSet<ObjectRef> {
        &self.unreadable
    }

    /// Whether an object that the source does not show is gone.
    pub fn is_gone(&self, reference: &ObjectRef) -> bool {
        self.complete && self.shows(&reference.namespace) && !self.unreadable.contains(reference)
    }
}
