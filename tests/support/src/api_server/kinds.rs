//! The server's kinds of objects, and the traits of each.
//!
//! A new kind needs a row here, a printer in `columns.rs` if `kubectl get` must show more than its name and age, and
//! defaults in `admit.rs` if it has any.

use k8s_openapi::api::{apps, coordination, core, discovery, events, networking, policy, rbac};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource};
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

/// A kind of objects in namespaces.
const fn in_namespaces<T>(short: &'static [&'static str], traits: &'static [Trait]) -> Kind
where
    T: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Serialize,
{
    known::<T>(true, short, traits)
}

/// A kind of objects of the whole cluster.
const fn of_cluster<T>(short: &'static [&'static str], traits: &'static [Trait]) -> Kind
where
    T: Resource<Scope = ClusterResourceScope> + DeserializeOwned + Serialize,
{
    known::<T>(false, short, traits)
}

const fn known<T>(namespaced: bool, short: &'static [&'static str], traits: &'static [Trait]) -> Kind
where
    T: Resource + DeserializeOwned + Serialize,
{
    Kind {
        group: T::GROUP,
        version: T::VERSION,
        plural: T::URL_PATH_SEGMENT,
        kind: T::KIND,
        short,
        namespaced,
        traits,
        typed: typed::<T>,
    }
}

/// A kind of the Prometheus operator.
const fn custom(plural: &'static str, kind: &'static str, short: &'static [&'static str]) -> Kind {
    Kind {
        group: MONITORING_GROUP,
        version: "v1",
        plural,
        kind,
        short,
        namespaced: true,
        traits: &[Generation],
        typed: Ok,
    }
}

fn typed<T: DeserializeOwned + Serialize>(object: Value) -> Result<Value, String> {
    let object: T = serde_json::from_value(object).map_err(|error| error.to_string())?;
    serde_json::to_value(object).map_err(|error| error.to_string())
}

use Trait::{Conditional, CreatedByPut, DeletedIsReturned, Generation, InAll, Status, StatusAtCreation};

/// All kinds. Without a group, kubectl takes the first group that has the resource.
pub(super) static KINDS: &[Kind] = &[
    in_namespaces::<core::v1::Service>(&["svc"], &[Status, DeletedIsReturned, InAll]),
    of_cluster::<core::v1::Node>(&["no"], &[Status, StatusAtCreation]),
    in_namespaces::<core::v1::Pod>(&["po"], &[Status, DeletedIsReturned, InAll]),
    of_cluster::<core::v1::Namespace>(&["ns"], &[Status]),
    in_namespaces::<core::v1::Event>(&["ev"], &[CreatedByPut]),
    in_namespaces::<core::v1::ConfigMap>(&["cm"], &[]),
    in_namespaces::<core::v1::ServiceAccount>(&["sa"], &[DeletedIsReturned]),
    in_namespaces::<core::v1::Secret>(&[], &[]),
    in_namespaces::<discovery::v1::EndpointSlice>(&[], &[Generation]),
    in_namespaces::<coordination::v1::Lease>(&[], &[Conditional, CreatedByPut]),
    in_namespaces::<events::v1::Event>(&["ev"], &[CreatedByPut]),
    in_namespaces::<apps::v1::StatefulSet>(&["sts"], &[Status, Generation, InAll]),
    in_namespaces::<apps::v1::DaemonSet>(&["ds"], &[Status, Generation, InAll]),
    in_namespaces::<networking::v1::NetworkPolicy>(&["netpol"], &[Generation]),
    custom("podmonitors", "PodMonitor", &["pmon"]),
    custom("prometheusrules", "PrometheusRule", &["promrule"]),
    in_namespaces::<policy::v1::PodDisruptionBudget>(&["pdb"], &[Status, Generation, Conditional]),
    in_namespaces::<rbac::v1::Role>(&[], &[CreatedByPut]),
    in_namespaces::<rbac::v1::RoleBinding>(&[], &[CreatedByPut]),
    of_cluster::<rbac::v1::ClusterRole>(&[], &[CreatedByPut]),
    of_cluster::<rbac::v1::ClusterRoleBinding>(&[], &[CreatedByPut]),
];

/// The group of roles and their bindings.
pub(super) const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
