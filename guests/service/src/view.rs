//! What follows from the inputs, with indexes of what an event touches: the share of each pod, redirections of endpoint
//! addresses, and each service combined with its endpoints, which is not stored.
//!
//! Pure. Everything here can be derived from the inputs; it is stored so that an event costs only what it touches,
//! however many other services exist.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::address::Address;
use trueup_guest::network;

use crate::bindings::exports::trueup::service::processor::CustomInterface;
use crate::bindings::trueup::service::types::{Backend, ContivService, PortBackends};
use crate::id::Id;
use crate::inputs::{Endpoints, Inputs, Location, Subset, Wiring};
use crate::interfaces::Interfaces;

/// The indexes, and both sets of interfaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    default_pod_network: String,
    /// Which endpoints list each address.
    listed: BTreeSet<(Address, Id)>,
    redirects: Redirects,
    /// The share of each pod, without empty ones.
    shares: BTreeMap<Id, Share>,
    /// The pods of this node behind each contiv-service. Holds every contiv-service.
    local_backends: BTreeMap<Id, Vec<Id>>,
    /// How many contiv-services name a pod of this node.
    served: BTreeMap<Id, usize>,
    /// The interfaces of clients.
    pub(crate) frontends: Interfaces,
    /// The interfaces of backends.
    pub(crate) backends: Interfaces,
}

impl View {
    /// The view of these inputs before any service.
    pub(crate) fn new(inputs: &Inputs, default_pod_network: &str) -> Self {
        let mut view = Self {
            default_pod_network: default_pod_network.to_owned(),
            ..Self::default()
        };
        view.frontends.hold(inputs.wiring.frontends());
        view.backends.hold(inputs.wiring.backends());
        for id in inputs.local_pods.keys().chain(inputs.allocations.keys()) {
            view.touch_pod(inputs, id);
        }
        let listed = inputs.endpoints.iter();
        view.listed = listed.flat_map(|(id, endpoints)| listing_of(id, endpoints)).collect();
        view
    }

    /// The contiv-services, by id.
    pub(crate) fn services(&self) -> impl ExactSizeIterator<Item = &Id> {
        self.local_backends.keys()
    }

    /// The endpoints of a service have changed from `old` to `new`.
    pub(crate) fn list(&mut self, id: &Id, old: Option<&Endpoints>, new: Option<&Endpoints>) {
        for listed in old.into_iter().flat_map(|old| listing_of(id, old)) {
            self.listed.remove(&listed);
        }
        self.listed.extend(new.into_iter().flat_map(|new| listing_of(id, new)));
    }

    /// A pod or its extra interfaces have changed. Returns the services whose backends have a new effective address.
    pub(crate) fn touch_pod(&mut self, inputs: &Inputs, id: &Id) -> BTreeSet<Id> {
        let new = share(inputs, &self.default_pod_network, id);
        let old = self.shares.remove(id).unwrap_or_default();
        self.frontends.hold(&new.frontends);
        self.frontends.release(&old.frontends);
        if self.served.contains_key(id) {
            self.backends.hold(&new.backend);
            self.backends.release(&old.backend);
        }
        let mut touched = BTreeSet::new();
        if old.redirect != new.redirect {
            let gone = old.redirect.map(|(from, _)| (from, None));
            let begun = new.redirect.map(|(from, target)| (from, Some(target)));
            for (from, target) in gone.into_iter().chain(begun) {
                if self.redirects.set(from, id, target) {
                    let listed = self.listed.range((from, Id::least())..);
                    let listed = listed.take_while(|(address, _)| *address == from);
                    touched.extend(listed.map(|(_, id)| id.clone()));
                }
            }
        }
        if new != Share::default() {
            self.shares.insert(id.clone(), new);
        }
        touched
    }

    /// Combines a service again; `None` if there is no contiv-service of that id.
    pub(crate) fn combine(&mut self, inputs: &Inputs, id: &Id) -> Option<ContivService> {
        let both = inputs.services.get(id).zip(inputs.endpoints.get(id));
        let combined = both.map(|(service, endpoints)| combine(service, endpoints, &self.redirects, &inputs.wiring));
        let (service, local_backends) = combined.unzip();
        self.serve(id, local_backends);
        service
    }

    /// The service names these pods from now on; `None` if there is no such service.
    fn serve(&mut self, id: &Id, pods: Option<Vec<Id>>) {
        let old = match pods {
            Some(pods) => self.local_backends.insert(id.clone(), pods),
            None => self.local_backends.remove(id),
        };
        for pod in self.local_backends.get(id).into_iter().flatten() {
            let count = self.served.entry(pod.clone()).or_default();
            *count = count.saturating_add(1);
            if *count == 1
                && let Some(share) = self.shares.get(pod)
            {
                self.backends.hold(&share.backend);
            }
        }
        for pod in &old.unwrap_or_default() {
            match self.served.get_mut(pod) {
                Some(count) if *count > 1 => *count -= 1,
                _ => {
                    self.served.remove(pod);
                    if let Some(share) = self.shares.get(pod) {
                        self.backends.release(&share.backend);
                    }
                }
            }
        }
    }
}

/// The addresses that these endpoints list, each with their id.
fn listing_of(id: &Id, endpoints: &[Subset]) -> impl Iterator<Item = (Address, Id)> {
    let addresses = endpoints.iter().flat_map(|subset| &subset.addresses);
    addresses.map(|(address, _)| (*address, id.clone()))
}

/// A pod's share in the function of the inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Interfaces of clients.
    pub(crate) frontends: Vec<String>,
    /// Its interface as a backend; `None` if the pod is not on this node, or has none.
    pub(crate) backend: Option<String>,
    /// Endpoints with the first address are reached at the second.
    pub(crate) redirect: Option<(Address, Address)>,
}

/// The share of the pod of that id; empty if the id is unknown.
pub(crate) fn share(inputs: &Inputs, default_pod_network: &str, id: &Id) -> Share {
    let interfaces = inputs.allocations.get(id).map_or(&[][..], Vec::as_slice);
    let endpoint = service_endpoint(interfaces);
    let mut share = Share {
        redirect: inputs.pod(id).and_then(|pod| Some((pod.address?, target(endpoint?)?))),
        ..Share::default()
    };
    if let Some(pod) = inputs.local_pods.get(id) {
        let counts =
            |interface: &&CustomInterface| interface.network.is_empty() || interface.network == default_pod_network;
        let extra = interfaces.iter().filter(counts).filter_map(interface_name);
        let own = pod.interface.as_deref().into_iter();
        share.frontends = own.chain(extra).map(str::to_owned).collect();
        let backend = endpoint.and_then(interface_name).or(pod.interface.as_deref());
        share.backend = backend.map(str::to_owned);
    }
    share
}

/// The interface that a pod's services are redirected to: the last one that asks for it.
pub(crate) fn service_endpoint(interfaces: &[CustomInterface]) -> Option<&CustomInterface> {
    interfaces.iter().rev().find(|interface| interface.service_endpoint)
}

fn interface_name(interface: &CustomInterface) -> Option<&str> {
    interface.interface_name.as_deref().filter(|name| !name.is_empty())
}

fn target(endpoint: &CustomInterface) -> Option<Address> {
    Address::parse(network::without_prefix_len(&endpoint.ip))
}

/// The target of each requesting pod, by the redirected address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redirects(BTreeMap<Address, BTreeMap<Id, Address>>);

impl Redirects {
    /// The effective address: the target of the first pod by id, else the address itself.
    pub(crate) fn target(&self, address: Address) -> Address {
        let asked = self.0.get(&address).and_then(|by_pod| by_pod.first_key_value());
        asked.map_or(address, |(_, target)| *target)
    }

    /// A pod asks for a redirection, or for none any more. True if that changes the target.
    fn set(&mut self, from: Address, pod: &Id, target: Option<Address>) -> bool {
        let before = self.target(from);
        let by_pod = self.0.entry(from).or_default();
        match target {
            Some(target) => by_pod.insert(pod.clone(), target),
            None => by_pod.remove(pod),
        };
        if by_pod.is_empty() {
            self.0.remove(&from);
        }
        self.target(from) != before
    }
}

/// The contiv-service, and the pods behind its addresses on this node, ascending, whether or not a port matches.
/// `service` has no backends yet.
pub(crate) fn combine(
    service: &ContivService,
    endpoints: &[Subset],
    redirects: &Redirects,
    wiring: &Wiring,
) -> (ContivService, Vec<Id>) {
    #[cfg(test)]
    crate::counting::count(&crate::counting::COMBINED);
    // The ports ascend by name.
    let mut found: Vec<Vec<(Location, u16)>> = vec![Vec::new(); service.ports.len()];
    let mut local_backends = Vec::new();
    // Where the renderers reach an address.
    let locate = |(listed, _): &(Address, Option<Id>)| wiring.location(redirects.target(*listed));
    for subset in endpoints {
        let located: Vec<Location> = subset.addresses.iter().map(locate).collect();
        let local = subset.addresses.iter().zip(&located).filter(|(_, at)| at.is_local);
        local_backends.extend(local.filter_map(|((_, pod), _)| pod.clone()));
        for (name, number) in &subset.ports {
            // Ignore protocols on purpose: names decide which port is meant.
            let index = service.ports.binary_search_by(|port| port.name.as_str().cmp(name));
            if let Some(found) = index.ok().and_then(|index| found.get_mut(index)) {
                found.extend(located.iter().map(|&at| (at, *number)));
            }
        }
    }
    local_backends.sort();
    local_backends.dedup();
    let names = service.ports.iter().map(|port| port.name.clone());
    let backends = names.zip(found).map(|(port_name, found)| PortBackends {
        port_name,
        backends: ordered(found),
    });
    let service = ContivService {
        backends: backends.collect(),
        ..service.clone()
    };
    (service, local_backends)
}

/// Each address and port once, in order.
fn ordered(mut found: Vec<(Location, u16)>) -> Vec<Backend> {
    let key = |(spot, port): &(Location, u16)| (spot.address, *port);
    found.sort_by_key(key);
    found.dedup_by_key(|backend| key(backend));
    let backend = |(spot, port): (Location, u16)| Backend {
        ip: spot.address.to_string(),
        port,
        local: spot.is_local,
        host_network: spot.is_host_network,
    };
    found.into_iter().map(backend).collect()
}
