//! Translates Kubernetes objects into the desired state for the guest `lbaas`, and its answer into a Service's status.
//!
//! Pure: objects and settings in, values out. It calls no guest, keeps nothing, and checks only what the guest cannot
//! see. The guest itself checks names, addresses and numbers, and reports errors in them.
//!
//! ```text
//! Objects + Settings -> desired -> Desired -> (the guest) -> AddressPorts -> status
//! ```
//!
//! A Service is ours if it is of type LoadBalancer, is not being deleted, and has no other `spec.loadBalancerClass`
//! than [`LOAD_BALANCER_CLASS`]. A Service with another class belongs to another controller, and a Service that stops
//! being ours counts as deleted.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    LoadBalancerIngress, LoadBalancerStatus, Node, PortStatus, Service, ServicePort, ServiceStatus,
};
use trueup_sources::{Change, Kind, Object, Objects};
use uuid::{Uuid, uuid};

pub(crate) use trueup_config::LbaasAdapter as Settings;

use super::guest::{AddressPorts, Desired, Port, Target};
use crate::source_ranges::SourceRanges;

pub(crate) use trueup_work::objects::Id as Key;

/// The `spec.loadBalancerClass` of Services for trueup. Services without a class are for trueup too.
pub(crate) const LOAD_BALANCER_CLASS: &str = "trueup.dev/lbaas";

/// Our finalizer on a Service: objects with its UID may exist.
pub(crate) const FINALIZER: &str = "trueup.dev/lbaas";

/// The annotation of a Service with its external addresses, separated by commas.
pub(crate) const ADDRESSES_ANNOTATION: &str = "trueup.dev/addresses";

/// A Node with this label, whatever its value, gets no traffic from load balancers: a rule of Kubernetes.
pub(crate) const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The UUID namespace of [`made_uid`]: the UUIDv5 of `trueup.dev` in the namespace for DNS names. Changing it would
/// orphan every resource of a Service without a UID.
const UID_NAMESPACE: Uuid = uuid!("281b00b3-e540-5cd8-a112-8d29a465c6e6");

/// The Nodes that load balancers may send traffic to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Servers {
    /// Sorted by name.
    pub(crate) targets: Vec<Target>,
    /// Nodes that are ready but left out, and why; one line each.
    pub(crate) notes: Vec<String>,
}

/// The desired state of one Service, or why it is impossible: one line with the Service's name. `None` if no such
/// Service is ours: then use [`removal`].
pub(crate) fn desired(
    objects: &Objects,
    key: &Key,
    servers: &Servers,
    settings: &Settings,
) -> Option<Result<Desired, String>> {
    let service = objects.service(&key.namespace, &key.name);
    let service = service.filter(|service| is_ours(service))?;
    Some(desired_of(key, service, servers, settings).map_err(|cause| format!("service `{key}`: {cause}")))
}

/// The desired state that removes the objects of a deleted Service: with the UID they were created with, on the load
/// balancers where they were.
pub(crate) fn removal(key: &Key, uid: &str, load_balancers: Vec<String>, settings: &Settings) -> Desired {
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

/// The number of objects of a reconciled Service: for each load balancer and port a backend and a frontend, a bind for
/// each address and a server for each Node.
pub(crate) fn object_count(desired: &Desired) -> u64 {
    let of_a_port = 2 + desired.external_addresses.len() + desired.servers.len();
    (desired.load_balancers.len() * desired.ports.len() * of_a_port) as u64
}

/// The Nodes that are ready, not excluded, and have an internal address.
pub(crate) fn servers(objects: &Objects) -> Servers {
    let mut servers = Servers::default();
    for server in objects.nodes().filter_map(server) {
        match server {
            Ok(target) => servers.targets.push(target),
            Err(note) => servers.notes.push(note),
        }
    }
    servers
}

/// Whether a change of a Service affects its key; `before` are the objects without the change.
pub(crate) fn affects_key(change: &Change, before: &Objects) -> bool {
    let mut versions = before.get(&change.reference).into_iter().chain(&change.now);
    versions.any(|object| matches!(object, Object::Service(service) if is_ours(service)))
}

/// Every Service that is ours.
pub(crate) fn ours(objects: &Objects) -> impl Iterator<Item = Key> {
    let ours = objects.services().filter(|(_, service)| is_ours(service));
    ours.map(|(reference, _)| Key::from(reference))
}

/// Whether a change of a Node may change the list of servers, or the notes.
pub(crate) fn concerns_servers(change: &Change, before: &Objects) -> bool {
    let server_of = |object: Option<&Object>| match object {
        Some(Object::Node(node)) => server(node),
        _ => None,
    };
    change.reference.kind == Kind::Node && server_of(before.get(&change.reference)) != server_of(change.now.as_ref())
}

/// The UID under which the objects of a Service are, also if the Service has none.
pub(crate) fn uid(key: &Key, service: &Service, settings: &Settings) -> String {
    let uid = service.metadata.uid.as_ref().filter(|uid| !uid.is_empty());
    uid.cloned().unwrap_or_else(|| made_uid(key, settings))
}

/// The UID for a missing `metadata.uid`: the UUIDv5 of `<cluster>/<namespace>/<name>` in its own UUID namespace.
/// Neither a namespace nor a name can contain a `/`, so no two Services of any clusters have the same text.
pub(crate) fn made_uid(key: &Key, settings: &Settings) -> String {
    let text = format!("{}/{}/{}", settings.cluster, key.namespace, key.name);
    Uuid::new_v5(&UID_NAMESPACE, text.as_bytes()).to_string()
}

/// The `status` of a Service with these addresses and ports in service.
pub(crate) fn status(in_service: &[AddressPorts]) -> ServiceStatus {
    let tcp = |port: &u16| PortStatus {
        error: None,
        port: i32::from(*port),
        protocol: "TCP".to_owned(),
    };
    let ingress = |entry: &AddressPorts| LoadBalancerIngress {
        ip: Some(entry.address.clone()),
        ports: Some(entry.ports.iter().map(tcp).collect()),
        ..Default::default()
    };
    // Kubernetes omits an empty list.
    let ingress = (!in_service.is_empty()).then(|| in_service.iter().map(ingress).collect());
    ServiceStatus {
        load_balancer: Some(LoadBalancerStatus { ingress }),
        ..Default::default()
    }
}

/// Whether its objects should exist.
pub(crate) fn is_ours(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.type_.as_deref() == Some("LoadBalancer")
        && !is_anothers(service)
        && service.metadata.deletion_timestamp.is_none()
}

/// Whether its class belongs to another controller.
pub(crate) fn is_anothers(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let class = spec.and_then(|spec| spec.load_balancer_class.as_ref());
    class.is_some_and(|class| class != LOAD_BALANCER_CLASS)
}

/// Whether it has our finalizer: its objects may exist, and it is not removed before them.
pub(crate) fn is_claimed(service: &Service) -> bool {
    let mut finalizers = service.metadata.finalizers.iter().flatten();
    finalizers.any(|finalizer| finalizer == FINALIZER)
}

fn desired_of(key: &Key, service: &Service, servers: &Servers, settings: &Settings) -> Result<Desired, String> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let external_addresses = addresses(service, settings)?;
    if let Some(ranges) = SourceRanges::of(service)
        && !external_addresses.iter().all(|address| ranges.let_all_in(address))
    {
        // These load balancers accept connections from every client.
        return Err(format!(
            "{ranges} can't be held to by these load balancers, which every client reaches: nothing is created or \
             changed, and what is there stays as it is; remove it, or give the Service a loadBalancerClass of another controller"
        ));
    }
    let uid = uid(key, service, settings);
    Ok(Desired {
        external_addresses,
        ports: ports.map(port_of).collect::<Result<_, _>>()?,
        servers: servers.targets.clone(),
        ..removal(key, &uid, settings.load_balancers.clone(), settings)
    })
}

/// The suffix of the names of a Service's objects.
pub(crate) fn name_suffix(key: &Key, settings: &Settings) -> String {
    format!("{}.{}.{}", key.name, key.namespace, settings.cluster)
}

/// The most specific setting wins: the Service's own field, then its annotation, then the default. A field or an
/// annotation without any address counts as missing.
fn addresses(service: &Service, settings: &Settings) -> Result<Vec<String>, String> {
    let own = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_ref());
    let annotations = service.metadata.annotations.as_ref();
    let annotation = annotations.and_then(|all| all.get(ADDRESSES_ANNOTATION));
    let listed = own.into_iter().chain(annotation).map(|list| {
        let addresses = list.split(',').map(str::trim);
        let given = addresses.filter(|address| !address.is_empty());
        given.map(str::to_owned).collect::<Vec<_>>()
    });
    let configured = std::iter::once(settings.addresses.clone());
    let given = listed.chain(configured).find(|addresses| !addresses.is_empty());
    // If this meant "no addresses", a mistake in the configuration would close every port.
    given.ok_or_else(|| {
        "has no external address: set spec.loadBalancerIP, the annotation `trueup.dev/addresses`, or `addresses` in \
         [adapter.lbaas]"
            .to_owned()
    })
}

fn port_of(port: &ServicePort) -> Result<Port, String> {
    let name = port.name.clone().filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| port.port.to_string());
    let protocol = port.protocol.as_deref();
    if let Some(protocol) = protocol.filter(|protocol| !matches!(*protocol, "" | "TCP")) {
        return Err(format!(
            "port `{name}` has protocol `{protocol}`: only TCP can be load-balanced here"
        ));
    }
    // Kubernetes writes 0 for a node port that is not assigned. Without one the traffic has no destination.
    let node_port = port.node_port.filter(|number| *number != 0).ok_or_else(|| {
        format!("port `{name}` has no nodePort: set spec.ports[].nodePort, or let the cluster assign one")
    })?;
    // The numbers in Kubernetes have a wider range than ports.
    let number = |field: &str, was: i32| {
        let number = u16::try_from(was).ok().filter(|number| *number != 0);
        number.ok_or_else(|| format!("port `{name}`: {field} was {was}, must be 1 to 65535"))
    };
    Ok(Port {
        external: number("port", port.port)?,
        internal: number("nodePort", node_port)?,
        name,
    })
}

/// A Node as a server, or why it can't be one although it should. `None` if it is excluded or not ready.
fn server(node: &Node) -> Option<Result<Target, String>> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let labels = node.metadata.labels.as_ref();
    let status = node.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if !is_ready || labels.is_some_and(|labels| labels.contains_key(EXCLUDE_LABEL)) {
        return None;
    }
    let left_out = |why: &str| Some(Err(format!("node `{name}` is ready but {why}: it gets no traffic")));
    let mut addresses = status.addresses.iter().flatten();
    let Some(internal) = addresses.find(|address| address.type_ == "InternalIP") else {
        return left_out("has no InternalIP");
    };
    let address = internal.address.clone();
    // The guest rejects the whole input for one bad address: one broken Node would stop every Service.
    if address.parse::<IpAddr>().is_err() {
        return left_out(&format!("its InternalIP `{address}` is no IP address"));
    }
    Some(Ok(Target { name, address }))
}

#[cfg(test)]
mod tests;
