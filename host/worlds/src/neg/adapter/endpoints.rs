//! Translates the EndpointSlices of a Service into the endpoints of one of its ports: the ready ones, with both address
//! families of a pod in one endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::discovery::v1::{Endpoint as Entry, EndpointSlice};
use trueup_capabilities::neg::{Endpoint, EndpointGroup, Location};

use super::Facts;

/// With a Node and a port, identifies the addresses of one pod or other target.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Who<'a> {
    Uid(&'a str),
    /// Kind and name. A slice and its targets are in the same namespace.
    Named(&'a str, &'a str),
    Host(&'a str),
    /// The owner is unknown, so the address is alone.
    Address(IpAddr),
}

#[derive(Default)]
struct Addresses {
    v4: BTreeSet<Ipv4Addr>,
    v6: BTreeSet<Ipv6Addr>,
}

/// The endpoints of the port with the name `port_name` in slices (empty if it has no name). Endpoints on
/// a Node whose location `node` does not know are left out.
///
/// An address in several slices is one endpoint, and ready if one of them says so: both slices may contain an endpoint
/// while it moves.
pub(super) fn placed<'a>(
    slices: impl Iterator<Item = &'a EndpointSlice>,
    port_name: &str,
    node: impl Fn(&str) -> Option<&'a Facts>,
) -> Vec<EndpointGroup> {
    let mut owners: BTreeMap<(&str, u16, Who<'_>), Addresses> = BTreeMap::new();
    for slice in slices {
        let Some(port) = port_of(slice, port_name) else {
            continue;
        };
        for entry in ready(slice) {
            let (Some(on), Some(address)) = (node_of(entry), address_of(slice, entry)) else {
                continue;
            };
            let who = who(entry).unwrap_or(Who::Address(address));
            let addresses = owners.entry((on, port, who)).or_default();
            match address {
                IpAddr::V4(address) => addresses.v4.insert(address),
                IpAddr::V6(address) => addresses.v6.insert(address),
            };
        }
    }
    let mut groups: BTreeMap<(&str, &str), BTreeSet<Endpoint>> = BTreeMap::new();
    for ((on, port, _), addresses) in owners {
        let Some(at) = node(on) else { continue };
        if let (Some(zone), Some(subnet)) = (&at.zone, &at.subnet) {
            let group = groups.entry((zone, subnet)).or_default();
            group.extend(addresses.paired(port, &at.instance));
        }
    }
    let group = |((zone, subnet), endpoints): ((&str, &str), BTreeSet<Endpoint>)| EndpointGroup {
        location: Location {
            zone: zone.to_owned(),
            subnet: subnet.to_owned(),
        },
        endpoints: endpoints.into_iter().collect(),
    };
    groups.into_iter().map(group).collect()
}

impl Addresses {
    /// A pod has one address per family. If there are more, they are paired in order.
    fn paired(&self, port: u16, instance: &str) -> impl Iterator<Item = Endpoint> {
        let (mut v4, mut v6) = (self.v4.iter(), self.v6.iter());
        let count = self.v4.len().max(self.v6.len());
        (0..count).map(move |_| Endpoint {
            ip: v4.next().map(Ipv4Addr::to_string).unwrap_or_default(),
            ipv6: v6.next().map(Ipv6Addr::to_string).unwrap_or_default(),
            port: port.to_string(),
            node: instance.to_owned(),
        })
    }
}

/// Why an endpoint can be in no NEG, independent of its Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flaw {
    NoNode,
    NoAddress,
}

/// The ready endpoints of a slice that can be in no NEG, by flaw: the first address as written, and their number.
pub(super) fn flaws(slice: &EndpointSlice) -> BTreeMap<Flaw, (&str, usize)> {
    let mut flaws = BTreeMap::new();
    for entry in ready(slice) {
        let flaw = match (node_of(entry), address_of(slice, entry)) {
            (_, None) => Flaw::NoAddress,
            (None, _) => Flaw::NoNode,
            _ => continue,
        };
        let written = entry.addresses.first().map_or("", String::as_str);
        flaws.entry(flaw).or_insert((written, 0)).1 += 1;
    }
    flaws
}

/// The Nodes of a slice's ready endpoints.
pub(super) fn nodes(slice: &EndpointSlice) -> BTreeSet<&str> {
    ready(slice).filter_map(node_of).collect()
}

/// A missing condition means ready: a rule of Kubernetes.
fn ready(slice: &EndpointSlice) -> impl Iterator<Item = &Entry> {
    let is_ready = |entry: &&Entry| entry.conditions.as_ref().and_then(|all| all.ready) != Some(false);
    slice.endpoints.iter().filter(is_ready)
}

fn port_of(slice: &EndpointSlice, name: &str) -> Option<u16> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let is_named = |given: Option<&str>| given.unwrap_or_default() == name;
    let is_tcp = |protocol: Option<&str>| matches!(protocol, None | Some("" | "TCP"));
    let mut named = ports.iter().filter(|port| is_named(port.name.as_deref()));
    let port = named.find(|port| is_tcp(port.protocol.as_deref()))?;
    u16::try_from(port.port?).ok().filter(|number| *number > 0)
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn node_of(entry: &Entry) -> Option<&str> {
    given(entry.node_name.as_deref())
}

fn who(entry: &Entry) -> Option<Who<'_>> {
    let target = entry.target_ref.as_ref();
    let uid = target.and_then(|target| given(target.uid.as_deref()));
    let named = target.and_then(|target| {
        let kind = target.kind.as_deref().unwrap_or_default();
        Some(Who::Named(kind, given(target.name.as_deref())?))
    });
    let host = given(entry.hostname.as_deref());
    uid.map(Who::Uid).or(named).or(host.map(Who::Host))
}

/// Kubernetes guarantees that the addresses of one entry are interchangeable, and says to use the first. An address
/// that the guest would reject is left out: a single one would stop the whole Service.
fn address_of(slice: &EndpointSlice, entry: &Entry) -> Option<IpAddr> {
    let text = entry.addresses.first()?;
    match slice.address_type.as_str() {
        "IPv4" => text.parse().ok().map(IpAddr::V4),
        "IPv6" => {
            let address: Ipv6Addr = text.parse().ok()?;
            address.to_ipv4_mapped().is_none().then_some(IpAddr::V6(address))
        }
        _ => None,
    }
}
