//! The share of one pod and its extra interfaces: client interfaces, its backend interface, and a redirection.
//!
//! Pure.

use trueup_guest::address::Address;
use trueup_guest::network;

use crate::bindings::exports::trueup::service::processor::CustomInterface;
use crate::id::Id;
use crate::inputs::Inputs;

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
    let none = Vec::new();
    let interfaces = inputs.allocations.get(id).unwrap_or(&none);
    let endpoint = service_endpoint(interfaces);
    let mut share = Share {
        redirect: inputs.pod(id).and_then(|pod| Some((pod.address?, target(endpoint?)?))),
        ..Share::default()
    };
    if let Some(pod) = inputs.local_pods.get(id) {
        let counts =
            |interface: &&CustomInterface| interface.network.is_empty() || interface.network == default_pod_network;
        let extra = interfaces.iter().filter(counts).filter_map(interface_name);
        share.frontends = pod
            .interface
            .as_deref()
            .into_iter()
            .chain(extra)
            .map(str::to_owned)
            .collect();
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
