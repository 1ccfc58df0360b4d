//! From Kubernetes objects to what the guest `lbaas` should make true, and from its answer to a Service's status.
//!
//! Pure: objects and settings in, values out. It calls no guest, keeps nothing, and judges only what the guest cannot
//! see: names, addresses and numbers themselves are checked by the guest, which says what is wrong with them.
//!
//! ```text
//! Objects + Settings -> wish -> Desired -> (the guest) -> AddressPorts -> status
//! ```
//!
//! A Service is ours where it is of type LoadBalancer, is not being deleted, and names no other
//! `spec.loadBalancerClass` than [`LOAD_BALANCER_CLASS`]: a Service with another class belongs to another controller,
//! and one that stops being ours counts as gone.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    LoadBalancerIngress, LoadBalancerStatus, Node, PortStatus, Service, ServicePort, ServiceSpec, ServiceStatus,
};
use serde::{Deserialize, Serialize};
use uuid::{Uuid, uuid};

use super::{AddressPorts, Desired, Port, Target};
use crate::guests::source_ranges::SourceRanges;
use crate::sources::{Change, Kind, Object, ObjectRef, Objects};

/// The `spec.loadBalancerClass` of Services that are for trueup; Services without any are too.
pub const LOAD_BALANCER_CLASS: &str = "trueup.dev/lbaas";

/// Our finalizer on a Service: objects may exist under its UID.
pub const FINALIZER: &str = "trueup.dev/lbaas";

/// The annotation of a Service that lists its external addresses, separated by commas.
pub const ADDRESSES_ANNOTATION: &str = "trueup.dev/addresses";

/// A Node with this label, whatever its value, gets no traffic from load balancers: Kubernetes' own rule.
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// How often a wait for resources looks before it gives up, where the configuration does not say.
pub const BACKOFF_STEPS_DEFAULT: u32 = 30;

/// The UUID namespace of [`made_uid`]: the UUIDv5 of `trueup.dev` in the namespace for DNS names. Changing it would
/// orphan every resource of a Service without a UID.
const UID_NAMESPACE: Uuid = uuid!("281b00b3-e540-5cd8-a112-8d29a465c6e6");

/// How Services become wishes: the configuration's `[adapter.lbaas]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The cluster's name: the last part of every resource's name.
    pub cluster: String,
    /// The load balancers that serve every Service.
    pub load_balancers: Vec<String>,
    /// The external addresses of Services that name none themselves.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// How often a wait for resources looks before it gives up.
    #[serde(default = "backoff_steps_default")]
    pub backoff_steps: u32,
}

fn backoff_steps_default() -> u32 {
    BACKOFF_STEPS_DEFAULT
}

/// A Service by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Key {
    /// `default/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl From<&ObjectRef> for Key {
    fn from(reference: &ObjectRef) -> Self {
        Self {
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
        }
    }
}

/// Why a Service cannot be made true. One line, with the Service's name in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// Without a node port there is nothing to send traffic to.
    #[error(
        "service `{service}`: port `{port}` has no nodePort: set spec.ports[].nodePort, or let the cluster assign one"
    )]
    NodePortMissing {
        /// Which Service.
        service: Key,
        /// Its port, by name or number.
        port: String,
    },
    /// The load balancers forward TCP alone.
    #[error("service `{service}`: port `{port}` has protocol `{protocol}`: only TCP can be load-balanced here")]
    ProtocolNotTcp {
        /// Which Service.
        service: Key,
        /// Its port, by name or number.
        port: String,
        /// What it asks for.
        protocol: String,
    },
    /// Kubernetes' numbers are wider than ports are.
    #[error("service `{service}`: port `{port}`: {field} was {was}, must be 1 to 65535")]
    NotAPort {
        /// Which Service.
        service: Key,
        /// Its port, by name or number.
        port: String,
        /// `port` or `nodePort`.
        field: &'static str,
        /// What it says.
        was: i32,
    },
    /// Load balancers here take connections from every client.
    #[error(
        "service `{service}`: {ranges} can't be held to by these load balancers, which every client reaches: nothing is created or \
         changed, and what is there stays as it is; remove it, or give the Service a loadBalancerClass of another controller"
    )]
    Restricted {
        /// Which Service.
        service: Key,
        /// Where it says which clients may.
        ranges: String,
    },
    /// Taken as "no addresses", an oversight in the configuration would close every port.
    #[error(
        "service `{service}`: has no external address: set spec.loadBalancerIP, the annotation \
         `trueup.dev/addresses`, or `addresses` in [adapter.lbaas]"
    )]
    AddressMissing {
        /// Which Service.
        service: Key,
    },
}

/// The Nodes that load balancers may send traffic to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Servers {
    /// In order of name.
    pub targets: Vec<Target>,
    /// Nodes that are ready and still left out, and why; one line each.
    pub notes: Vec<String>,
}

/// What a Node is to load balancers.
#[derive(Clone, Debug, PartialEq)]
enum Role {
    Server(Target),
    /// Excluded, or not ready: as it should be.
    None,
    /// It should be a server and cannot.
    Unusable(String),
}

/// Every Service that is ours, with what it asks for or why that cannot be. What is not here is gone.
pub fn wishes(
    objects: &Objects,
    servers: &Servers,
    settings: &Settings,
) -> BTreeMap<Key, Result<Desired, AdapterError>> {
    objects
        .services()
        .filter(|(_, service)| is_ours(service))
        .map(|(reference, service)| {
            let key = Key::from(reference);
            let wish = wish_of(&key, service, servers, settings);
            (key, wish)
        })
        .collect()
}

/// What one Service asks for; none where there is none of that name that is ours: then [`removal`] is the wish.
pub fn wish(
    objects: &Objects,
    key: &Key,
    servers: &Servers,
    settings: &Settings,
) -> Option<Result<Desired, AdapterError>> {
    let service = objects
        .service(&key.namespace, &key.name)
        .filter(|service| is_ours(service))?;
    Some(wish_of(key, service, servers, settings))
}

/// What makes the objects of a Service go away that is no more: under the UID that it was made true with, on the load
/// balancers where it was.
pub fn removal(key: &Key, uid: &str, load_balancers: Vec<String>, settings: &Settings) -> Desired {
    Desired {
        load_balancers,
        name_suffix: name_suffix(key, settings),
        service_uid: uid.to_owned(),
        external_addresses: Vec::new(),
        ports: Vec::new(),
        servers: Vec::new(),
        backoff_steps: settings.backoff_steps,
    }
}

/// How many objects a Service has that is as it should be: for each load balancer and port a backend and a frontend, a bind for
/// each address and a server for each Node.
pub fn object_count(desired: &Desired) -> u64 {
    let of_a_port = 2 + desired.external_addresses.len() + desired.servers.len();
    (desired.load_balancers.len() * desired.ports.len() * of_a_port) as u64
}

/// The Nodes that are ready, not excluded, and have an internal address.
pub fn servers(objects: &Objects) -> Servers {
    let mut servers = Servers::default();
    for node in objects.nodes() {
        match role(node) {
            Role::Server(target) => servers.targets.push(target),
            Role::Unusable(note) => servers.notes.push(note),
            Role::None => {}
        }
    }
    servers
}

/// The Services that a change concerns, `before` being the objects without it: a Service's own key, and for a Node
/// all Services that are ours, but only where load balancers see a difference (a Node reports itself every few seconds).
pub fn affected(change: &Change, before: &Objects) -> Vec<Key> {
    let versions = [before.get(&change.reference), change.now.as_ref()];
    match change.reference.kind {
        Kind::Service => {
            let concerns = versions.into_iter().flatten().any(is_our_service);
            concerns.then(|| Key::from(&change.reference)).into_iter().collect()
        }
        Kind::Node if is_as_it_was(versions) => Vec::new(),
        Kind::Node => ours(before).collect(),
        // Load balancers send traffic to Nodes, whatever runs there.
        Kind::EndpointSlice | Kind::Pod => Vec::new(),
    }
}

/// Every Service that is ours.
pub(crate) fn ours(objects: &Objects) -> impl Iterator<Item = Key> {
    let ours = objects.services().filter(|(_, service)| is_ours(service));
    ours.map(|(reference, _)| Key::from(reference))
}

/// Whether a change of a Node may make another list of servers, or other notes.
pub(crate) fn concerns_servers(change: &Change, before: &Objects) -> bool {
    let role_of = |object: Option<&Object>| match object {
        Some(Object::Node(node)) => role(node),
        _ => Role::None,
    };
    change.reference.kind == Kind::Node && role_of(before.get(&change.reference)) != role_of(change.now.as_ref())
}

/// Load balancers see no difference.
fn is_as_it_was(versions: [Option<&Object>; 2]) -> bool {
    let [was, now] = versions.map(target_of);
    was == now
}

/// The UID that stands in for a missing `metadata.uid`: the UUIDv5 of `<cluster>/<namespace>/<name>` in a namespace of
/// its own. Neither a namespace nor a name can hold a `/`, so no two Services of any clusters share one text.
pub fn made_uid(key: &Key, settings: &Settings) -> String {
    let text = format!("{}/{}/{}", settings.cluster, key.namespace, key.name);
    Uuid::new_v5(&UID_NAMESPACE, text.as_bytes()).to_string()
}

/// The `status` of a Service whose addresses and ports are in service.
pub fn status(in_service: &[AddressPorts]) -> ServiceStatus {
    let ingress = |entry: &AddressPorts| LoadBalancerIngress {
        ip: Some(entry.address.clone()),
        ports: Some(entry.ports.iter().map(|port| tcp(*port)).collect()),
        ..Default::default()
    };
    // Kubernetes leaves the list out where it is empty.
    let ingress = (!in_service.is_empty()).then(|| in_service.iter().map(ingress).collect());
    ServiceStatus {
        load_balancer: Some(LoadBalancerStatus { ingress }),
        ..Default::default()
    }
}

fn tcp(port: u16) -> PortStatus {
    PortStatus {
        error: None,
        port: i32::from(port),
        protocol: "TCP".to_owned(),
    }
}

fn is_our_service(object: &Object) -> bool {
    matches!(object, Object::Service(service) if is_ours(service))
}

/// Whether its objects should be there.
pub(crate) fn is_ours(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.type_.as_deref() == Some("LoadBalancer")
        && !is_anothers(service)
        && service.metadata.deletion_timestamp.is_none()
}

/// Whether it is another controller's, by its class.
pub(crate) fn is_anothers(service: &Service) -> bool {
    let class = service
        .spec
        .as_ref()
        .and_then(|spec| spec.load_balancer_class.as_deref());
    class.is_some_and(|class| class != LOAD_BALANCER_CLASS)
}

/// Whether it has our finalizer: its objects may be there, and it does not go before them.
pub(crate) fn is_claimed(service: &Service) -> bool {
    let finalizers = service.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|finalizer| finalizer == FINALIZER)
}

/// A Service that is not ours any more while its objects may be there.
pub(crate) fn is_left_over(service: &Service) -> bool {
    is_claimed(service) && !is_ours(service)
}

fn wish_of(key: &Key, service: &Service, servers: &Servers, settings: &Settings) -> Result<Desired, AdapterError> {
    let spec = service.spec.as_ref();
    let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let uid = service.metadata.uid.as_deref().filter(|uid| !uid.is_empty());
    let external_addresses = addresses(key, service, spec, settings)?;
    if let Some(ranges) = SourceRanges::of(service)
        && !external_addresses.iter().all(|address| ranges.let_all_in(address))
    {
        return Err(AdapterError::Restricted {
            service: key.clone(),
            ranges: ranges.to_string(),
        });
    }
    Ok(Desired {
        load_balancers: settings.load_balancers.clone(),
        name_suffix: name_suffix(key, settings),
        service_uid: uid.map_or_else(|| made_uid(key, settings), str::to_owned),
        external_addresses,
        ports: ports.iter().map(|port| port_of(key, port)).collect::<Result<_, _>>()?,
        servers: servers.targets.clone(),
        backoff_steps: settings.backoff_steps,
    })
}

/// How the names of a Service's objects end.
pub(crate) fn name_suffix(key: &Key, settings: &Settings) -> String {
    format!("{}.{}.{}", key.name, key.namespace, settings.cluster)
}

/// The most particular wins: the Service's own field, then its annotation, then what holds for all. A field or an
/// annotation without any address in it counts as not there.
fn addresses(
    key: &Key,
    service: &Service,
    spec: Option<&ServiceSpec>,
    settings: &Settings,
) -> Result<Vec<String>, AdapterError> {
    let own = spec.and_then(|spec| spec.load_balancer_ip.as_deref());
    let annotation = service
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(ADDRESSES_ANNOTATION));
    let listed = [own, annotation.map(String::as_str)]
        .into_iter()
        .flatten()
        .map(split_addresses);
    let configured = std::iter::once(settings.addresses.clone());
    let mut given = listed.chain(configured).filter(|addresses| !addresses.is_empty());
    given
        .next()
        .ok_or_else(|| AdapterError::AddressMissing { service: key.clone() })
}

fn split_addresses(list: &str) -> Vec<String> {
    list.split(',')
        .map(str::trim)
        .filter(|address| !address.is_empty())
        .map(str::to_owned)
        .collect()
}

fn port_of(service: &Key, port: &ServicePort) -> Result<Port, AdapterError> {
    let name = match &port.name {
        Some(name) if !name.is_empty() => name.clone(),
        _ => port.port.to_string(),
    };
    if let Some(protocol) = port
        .protocol
        .as_deref()
        .filter(|protocol| !matches!(*protocol, "" | "TCP"))
    {
        let protocol = protocol.to_owned();
        return Err(AdapterError::ProtocolNotTcp {
            service: service.clone(),
            port: name,
            protocol,
        });
    }
    // Kubernetes writes 0 for a node port that is not assigned.
    let Some(node_port) = port.node_port.filter(|number| *number != 0) else {
        return Err(AdapterError::NodePortMissing {
            service: service.clone(),
            port: name,
        });
    };
    let number = |field, was: i32| match u16::try_from(was) {
        Ok(number) if number != 0 => Ok(number),
        _ => Err(AdapterError::NotAPort {
            service: service.clone(),
            port: name.clone(),
            field,
            was,
        }),
    };
    let (external, internal) = (number("port", port.port)?, number("nodePort", node_port)?);
    Ok(Port {
        name,
        external,
        internal,
    })
}

fn target_of(object: Option<&Object>) -> Option<Target> {
    match object {
        Some(Object::Node(node)) => match role(node) {
            Role::Server(target) => Some(target),
            Role::None | Role::Unusable(_) => None,
        },
        _ => None,
    }
}

fn role(node: &Node) -> Role {
    let name = node.metadata.name.clone().unwrap_or_default();
    let excluded = node
        .metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(EXCLUDE_LABEL));
    let status = node.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if excluded || !ready {
        return Role::None;
    }
    let addresses = status
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default();
    match addresses.iter().find(|address| address.type_ == "InternalIP") {
        None => Role::Unusable(format!(
            "node `{name}` is ready but has no InternalIP: it gets no traffic"
        )),
        // The guest refuses a whole wish for one bad address: one broken Node would stop every Service.
        Some(address) if address.address.parse::<IpAddr>().is_err() => Role::Unusable(format!(
            "node `{name}` is ready but its InternalIP `{}` is no IP address: it gets no traffic",
            address.address
        )),
        Some(address) => Role::Server(Target {
            name,
            address: address.address.clone(),
        }),
    }
}

#[cfg(test)]
mod tests;
