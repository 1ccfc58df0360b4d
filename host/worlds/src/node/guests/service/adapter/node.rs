//! Translates a Node into its addresses and the subnet of its pods.

use k8s_openapi::api::core::v1::Node;
use trueup_capabilities::bindings::kube::types::{Node as Input, NodeAddress, NodeAddressType};

/// The input for a Node, without addresses of types that are not part of Kubernetes.
pub(super) fn translated(name: &str, node: &Node) -> Input {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_deref());
    let address = |of: &k8s_openapi::api::core::v1::NodeAddress| {
        Some(NodeAddress {
            address_type: address_type(&of.type_)?,
            address: of.address.clone(),
        })
    };
    let spec = node.spec.as_ref();
    Input {
        name: name.to_owned(),
        addresses: addresses.unwrap_or_default().iter().filter_map(address).collect(),
        pod_cidr: spec.and_then(|spec| spec.pod_cidr.clone()).unwrap_or_default(),
    }
}

fn address_type(text: &str) -> Option<NodeAddressType> {
    match text {
        "InternalIP" => Some(NodeAddressType::InternalIp),
        "ExternalIP" => Some(NodeAddressType::ExternalIp),
        "Hostname" => Some(NodeAddressType::Hostname),
        "InternalDNS" => Some(NodeAddressType::InternalDns),
        "ExternalDNS" => Some(NodeAddressType::ExternalDns),
        _ => None,
    }
}
