//! What follows from the inputs, except the services themselves, with indexes of what an event touches.
//!
//! Pure. Everything here can be derived from the inputs; it is stored so that an event costs only what it touches,
//! however many other services exist.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::address::Address;

use crate::bindings::trueup::service::types::ContivService;
use crate::combine::combine;
use crate::id::Id;
use crate::inputs::{Endpoints, Inputs, Subset};
use crate::interfaces::Interfaces;
use crate::pods::{self, Share};
use crate::redirects::Redirects;

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

    /// The number of contiv-services.
    pub(crate) fn service_count(&self) -> usize {
        self.local_backends.len()
    }

    /// The contiv-services, by id.
    pub(crate) fn services(&self) -> impl Iterator<Item = &Id> {
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
        let new = pods::share(inputs, &self.default_pod_network, id);
        let old = self.shares.remove(id).unwrap_or_default();
        self.frontends.hold(&new.frontends);
        self.frontends.release(&old.frontends);
        if self.served.contains_key(id) {
            self.backends.hold(&new.backend);
            self.backends.release(&old.backend);
        }
        let mut touched = BTreeSet::new();
        if old.redirect != new.redirect {
            if let Some((from, _)) = old.redirect
                && self.redirects.remove(from, id)
            {
                touched.extend(self.listing(from));
            }
            if let Some((from, target)) = new.redirect
                && self.redirects.add(from, id, target)
            {
                touched.extend(self.listing(from));
            }
        }
        if new != Share::default() {
            self.shares.insert(id.clone(), new);
        }
        touched
    }

    fn listing(&self, address: Address) -> impl Iterator<Item = Id> {
        let from = self.listed.range((address, Id::least())..);
        from.take_while(move |(listed, _)| *listed == address)
            .map(|(_, id)| id.clone())
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
