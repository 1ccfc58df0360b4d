//! The relevant parts of a Pod that runs on this node.

use k8s_openapi::api::core::v1::Pod as Object;

/// A pod of this node with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    /// Distinguishes it from other pods with the same name over time. Empty if it has none.
    pub(super) uid: String,
    pub(super) ip: String,
    /// Whether it has no interface of its own.
    pub(super) is_on_host_network: bool,
}

impl Pod {
    /// `None` if it is on another node, has no address yet, or has ended. An ended pod keeps its address for a while,
    /// and another pod may already use it.
    pub(super) fn read(pod: &Object, node: &str) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let status = pod.status.as_ref()?;
        let is_here = spec.node_name.as_deref() == Some(node);
        let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let ip = status.pod_ip.as_ref().filter(|ip| !ip.is_empty())?;
        (is_here && !has_ended).then(|| Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            ip: ip.clone(),
            is_on_host_network: spec.host_network == Some(true),
        })
    }
}
