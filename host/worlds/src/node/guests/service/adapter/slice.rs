//! Translates the EndpointSlices of a Service into its endpoints: those that accept connections, each address once.
//!
//! *Which endpoints*: the same as in kube-proxy, for each port by name and over all slices of the Service: the ready
//! ones, or, if there are none, those that serve while they terminate. Endpoints of slices without ports form one
//! group.
//!
//! ```text
//! slice a: http 8080 -- p ready, q terminating ---+
//! slice b: http 8081 -- r terminating ------------+--> http: p:8080      admin: r:9090
//!          admin 9090 --/
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use trueup_work::objects::Id;

use super::service::{object_id, protocol, unknown_protocol, within};
use crate::node::guests::service::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectId};

/// The relevant parts of a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slice {
    /// The ports of every endpoint.
    ports: BTreeSet<EndpointPort>,
    entries: Vec<Entry>,
}

/// An endpoint that accepts connections, or may have to.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    ip: IpAddr,
    /// If false, it serves and terminates.
    is_ready: bool,
    address: EndpointAddress,
}

impl Slice {
    /// The relevant parts of a slice (`None` if none are used), and notes about what is left out.
    ///
    /// # Errors
    /// Why the slice is invalid.
    pub(super) fn read(id: &Id, slice: &EndpointSlice) -> Result<(Option<Self>, BTreeSet<String>), String> {
        let note = |text: String| format!("endpointslice `{id}`: {text}");
        if !matches!(slice.address_type.as_str(), "IPv4" | "IPv6") {
            let found = slice.address_type.escape_debug();
            let text = format!("its addresses are of type `{found}`, not IPv4 or IPv6: it is not used");
            return Ok((None, [note(text)].into()));
        }
        let mut notes = BTreeSet::new();
        let mut ports = BTreeSet::new();
        for (position, port) in slice.ports.iter().flatten().enumerate() {
            // A port without a number means all ports, which renderers do not support.
            let Some(number) = port.port else { continue };
            let number = within(number, 1).map_err(|cause| format!("ports[{position}].port: {cause}"))?;
            let Some(protocol) = protocol(port.protocol.as_deref()) else {
                notes.insert(note(unknown_protocol(number.into(), port.protocol.as_deref())));
                continue;
            };
            ports.insert(EndpointPort {
                name: port.name.clone().unwrap_or_default(),
                protocol,
                port: number,
            });
        }
        let mut unparsable = slice.endpoints.iter().filter(|entry| address(entry).is_none());
        if let Some(first) = unparsable.next() {
            notes.insert(note(no_address(first, unparsable.count())));
        }
        let entries = slice.endpoints.iter().filter_map(|entry| Entry::read(id, entry));
        let entries = entries.collect();
        Ok((Some(Self { ports, entries }), notes))
    }
}

impl Entry {
    /// `None` if it has no address, or accepts no connections.
    fn read(slice: &Id, entry: &Endpoint) -> Option<Self> {
        let conditions = entry.conditions.as_ref();
        // If a condition is missing, the rules of Kubernetes apply.
        let is_ready = conditions.and_then(|all| all.ready) != Some(false);
        let serves = conditions.and_then(|all| all.serving) != Some(false);
        let terminates = conditions.and_then(|all| all.terminating) == Some(true);
        let takes = is_ready || (serves && terminates);
        let ip = address(entry).filter(|_| takes)?;
        let address = EndpointAddress {
            ip: ip.to_string(),
            node_name: entry.node_name.clone().unwrap_or_default(),
            target_pod: target_pod(slice, entry),
        };
        Some(Self { ip, is_ready, address })
    }

    fn rank(&self) -> (bool, bool) {
        (self.is_ready, self.address.target_pod.is_some())
    }
}

/// Kubernetes guarantees that the addresses of one entry are interchangeable, and says to use the first.
fn address(entry: &Endpoint) -> Option<IpAddr> {
    let ip: IpAddr = entry.addresses.first()?.parse().ok()?;
    Some(ip.to_canonical())
}

fn no_address(first: &Endpoint, more: usize) -> String {
    let written = first.addresses.first().map_or("", String::as_str).escape_debug();
    let (more, have) = match more {
        0 => (String::new(), "has"),
        _ => (format!(" and {more} more"), "have"),
    };
    format!("endpoint `{written}`{more} {have} no IPv4 or IPv6 address: left out")
}

fn target_pod(slice: &Id, entry: &Endpoint) -> Option<ObjectId> {
    let target = entry.target_ref.as_ref()?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let name = given(&target.name).filter(|_| target.kind.as_deref() == Some("Pod"))?;
    Some(ObjectId {
        namespace: given(&target.namespace).unwrap_or_else(|| slice.namespace.clone()),
        name,
    })
}

/// The endpoints of a Service, sorted: one subset for each set of ports.
///
/// An address in several slices has the ports of all of them. Its pod and node come from the best entry: ready before
/// terminating, with a pod before without, then the first slice by name.
pub(super) fn united<'a>(id: &Id, slices: impl Iterator<Item = &'a Slice> + Clone) -> Endpoints {
    let ready = ready_ports(slices.clone());
    let mut addresses: BTreeMap<IpAddr, (&Entry, BTreeSet<&EndpointPort>)> = BTreeMap::new();
    for slice in slices {
        for entry in &slice.entries {
            let counts = |name: Option<&str>| entry.is_ready || !ready.contains(&name);
            let ports = slice.ports.iter().filter(|port| counts(Some(&port.name)));
            let ports: BTreeSet<&EndpointPort> = ports.collect();
            if ports.is_empty() && !(slice.ports.is_empty() && counts(None)) {
                continue;
            }
            let (best, its_ports) = addresses.entry(entry.ip).or_insert((entry, BTreeSet::new()));
            if entry.rank() > best.rank() {
                *best = entry;
            }
            its_ports.extend(ports);
        }
    }
    let mut subsets: BTreeMap<BTreeSet<&EndpointPort>, Vec<EndpointAddress>> = BTreeMap::new();
    for (entry, ports) in addresses.into_values() {
        subsets.entry(ports).or_default().push(entry.address.clone());
    }
    let subset = |(ports, addresses): (BTreeSet<&EndpointPort>, _)| EndpointSubset {
        addresses,
        ports: ports.into_iter().cloned().collect(),
    };
    Endpoints {
        id: object_id(id),
        subsets: subsets.into_iter().map(subset).collect(),
    }
}

/// The names of the ports with a ready endpoint. `None` is among them if an endpoint is ready in a slice without ports.
fn ready_ports<'a>(slices: impl Iterator<Item = &'a Slice>) -> BTreeSet<Option<&'a str>> {
    let mut names = BTreeSet::new();
    for slice in slices.filter(|slice| slice.entries.iter().any(|entry| entry.is_ready)) {
        if slice.ports.is_empty() {
            names.insert(None);
        }
        names.extend(slice.ports.iter().map(|port| Some(port.name.as_str())));
    }
    names
}
