//! The server's kinds of objects, and the traits of each.
//!
//! A new kind needs a row here, a printer in `columns.rs` if `kubectl get` must show more than its name and age, and
//! defaults in `admit.rs` if it has any.

use k8s_openapi::api::{apps, coordination, core, discovery, events, networking, policy, rbac};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind of objects, and its resource.
#[derive(Debug)]
pub struct Kind {
    /// The API group; empty is core.
    pub group: &'static str,
    /// The version of the group.
    pub version: &'static str,
    /// The resource's name in paths, such as `services`.
    pub plural: &'static str,
    /// The kind's name, such as `Service`.
    pub kind: &'static str,
    /// Names that kubectl also accepts.
    pub short: &'static [&'static str],
    /// The object is in a namespace.
    pub namespaced: bool,
    /// Its other traits.
    traits: &'static [Trait],
    /// Drops fields that the kind does not have; a wrong type is an error.
    pub typed: fn(Value) -> Result<Value, String>,
}

/// A trait of some kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// There is a `/status`, and only it changes status.
    Status,
    /// The creator also sets the status, like a kubelet with its Node.
    StatusAtCreation,
    /// `metadata.generation` counts changes other than of metadata or status. Services, Nodes and others have none.
    Generation,
    /// A PUT must name the resourceVersion that it replaces.
    Conditional,
    /// A PUT of a missing object creates it.
    CreatedByPut,
    /// A deletion answers with the object, not with a `Status`.
    DeletedIsReturned,
    /// `kubectl get all` includes it.
    InAll,
}

impl Kind {
    /// Whether the kind has a trait.
    pub fn has(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }

    /// `group/version`, or just the version of the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `leases.coordination.k8s.io`, or just `services`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The kind in whose form the objects are stored: both groups share the same Events.
    pub fn stored(&self) -> &'static Self {
        let group = if self.group == EVENTS_GROUP { "" } else { self.group };
        by_resource(group, self.plural).unwrap()
    }
}

/// The newer group of Events.
pub(super) const EVENTS_GROUP: &str = "events.k8s.io";

/// The Prometheus operator's group. Its kinds are custom resources: any fields, as without their schemas.
const MONITORING_GROUP: &str = "monitoring.coreos.com";

/// The kind of a resource.
pub(super) fn by_resource(group: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.group == group && kind.plural == plural)
}

/// The kind that an object names.
pub(super) fn of_object(object: &Value) -> Option<&'static Kind> {
    let api_version = object.get("apiVersion")?.as_str()?;
    let name = object.get("kind")?.as_str()?;
    KINDS
        .iter()
        .find(|kind| kind.kind == name && kind.api_version() == api_version)
}

/// A resource by a test's name for it: `services`, `endpointslices`; the first group that has it.
///
/// # Panics
///
/// If there is no such resource.
pub(super) fn named(plural: &str) -> &'static Kind {
    KINDS
        .iter()
        .find(|kind| kind.plural == plural)
        .unwrap_or_else(|| panic!("no resource is called `{plural}`"))
}

fn typed<T: DeserializeOwned + Serialize>(object: Value) -> Result<Value, String> {
    let object: T = serde_json::from_value(object).map_err(|error| error.to_string())?;
    serde_json::to_value(object).map_err(|error| error.to_string())
}

use Trait::{Conditional, CreatedByPut, DeletedIsReturned, Generation, InAll, Status, StatusAtCreation};

/// All kinds. Without a group, kubectl takes the first group that has the resource.
pub(super) static KINDS: &[Kind] = &[
    Kind {
        group: "",
        version: "v1",
        plural: "services",
        kind: "Service",
        short: &["svc"],
        namespaced: true,
        traits: &[Status, DeletedIsReturned, InAll],
        typed: typed::<core::v1::Service>,
    },
    Kind {
        group: "",
        version: "v1",
        plural: "nodes",
        kind: "Node",
        short: &["no"],
        namespaced: false,
        traits: &[Status, StatusAtCreation],
        typed: typed::<core::v1::Node>,
    },
    Kind {
        group: "",
        version: "v1",
        plural: "pods",
        kind: "Pod",
        short: &["po"],
        namespaced: true,
        traits: &[Status, DeletedIsReturned, InAll],
        typed: typed::<core::v1::Pod>,
    },
    Kind {
        group: "",
        version: "v1",
        plural: "namespaces",
        kind: "Namespace",
        short: &["ns"],
        namespaced: false,
        traits: &[Status],
        typed: typed::<core::v1::Namespace>,
    },
    Kind {
        group: "",
        version: "v1",
        plural: "events",
        kind: "Event",
        short: &["ev"],
        namespaced: true,
        traits: &[CreatedByPut],
        typed: typed::<core::v1::Event>,
    },
    Kind {
        group: "",
        version: "v1",
        plural: "configmaps",
        kind: "ConfigMap",
        short: &["cm"],
        namespaced: true,
        traits: &[],
        typed: typed::<core::v1::ConfigMap>,
    },
    Kind {
        group: "",
        version: "v1",
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        short: &["sa"],
        namespaced: true,
        traits: &[DeletedIsReturned],
        typed: typed::<core::v1::ServiceAccount>,
    },
    Kind {
        group: "",
        version: "v1",
        plural: "secrets",
        kind: "Secret",
        short: &[],
        namespaced: true,
        traits: &[],
        typed: typed::<core::v1::Secret>,
    },
    Kind {
        group: "discovery.k8s.io",
        version: "v1",
        plural: "endpointslices",
        kind: "EndpointSlice",
        short: &[],
        namespaced: true,
        traits: &[Generation],
        typed: typed::<discovery::v1::EndpointSlice>,
    },
    Kind {
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
        kind: "Lease",
        short: &[],
        namespaced: true,
        traits: &[Conditional, CreatedByPut],
        typed: typed::<coordination::v1::Lease>,
    },
    Kind {
        group: EVENTS_GROUP,
        version: "v1",
        plural: "events",
        kind: "Event",
        short: &["ev"],
        namespaced: true,
        traits: &[CreatedByPut],
        typed: typed::<events::v1::Event>,
    },
    Kind {
        group: "apps",
        version: "v1",
        plural: "statefulsets",
        kind: "StatefulSet",
        short: &["sts"],
        namespaced: true,
        traits: &[Status, Generation, InAll],
        typed: typed::<apps::v1::StatefulSet>,
    },
    Kind {
        group: "apps",
        version: "v1",
        plural: "daemonsets",
        kind: "DaemonSet",
        short: &["ds"],
        namespaced: true,
        traits: &[Status, Generation, InAll],
        typed: typed::<apps::v1::DaemonSet>,
    },
    Kind {
        group: "networking.k8s.io",
        version: "v1",
        plural: "networkpolicies",
        kind: "NetworkPolicy",
        short: &["netpol"],
        namespaced: true,
        traits: &[Generation],
        typed: typed::<networking::v1::NetworkPolicy>,
    },
    Kind {
        group: MONITORING_GROUP,
        version: "v1",
        plural: "podmonitors",
        kind: "PodMonitor",
        short: &["pmon"],
        namespaced: true,
        traits: &[Generation],
        typed: Ok,
    },
    Kind {
        group: MONITORING_GROUP,
        version: "v1",
        plural: "prometheusrules",
        kind: "PrometheusRule",
        short: &["promrule"],
        namespaced: true,
        traits: &[Generation],
        typed: Ok,
    },
    Kind {
        group: "policy",
        version: "v1",
        plural: "poddisruptionbudgets",
        kind: "PodDisruptionBudget",
        short: &["pdb"],
        namespaced: true,
        traits: &[Status, Generation, Conditional],
        typed: typed::<policy::v1::PodDisruptionBudget>,
    },
    Kind {
        group: RBAC_GROUP,
        version: "v1",
        plural: "roles",
        kind: "Role",
        short: &[],
        namespaced: true,
        traits: &[CreatedByPut],
        typed: typed::<rbac::v1::Role>,
    },
    Kind {
        group: RBAC_GROUP,
        version: "v1",
        plural: "rolebindings",
        kind: "RoleBinding",
        short: &[],
        namespaced: true,
        traits: &[CreatedByPut],
        typed: typed::<rbac::v1::RoleBinding>,
    },
    Kind {
        group: RBAC_GROUP,
        version: "v1",
        plural: "clusterroles",
        kind: "ClusterRole",
        short: &[],
        namespaced: false,
        traits: &[CreatedByPut],
        typed: typed::<rbac::v1::ClusterRole>,
    },
    Kind {
        group: RBAC_GROUP,
        version: "v1",
        plural: "clusterrolebindings",
        kind: "ClusterRoleBinding",
        short: &[],
        namespaced: false,
        traits: &[CreatedByPut],
        typed: typed::<rbac::v1::ClusterRoleBinding>,
    },
];

/// The group of roles and their bindings.
pub(super) const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
