//! A Node as seen by NEGs: a Compute Engine instance in a zone and a subnet.

use k8s_openapi::api::core::v1::Node;
use trueup_config::NegAdapter as Settings;

/// The Kubernetes label of a Node that names its zone.
pub(crate) const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The relevant parts of a Node. They stay equal while a Node only reports its heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The instance's name, by which a NEG knows it.
    pub(super) instance: String,
    /// `None` if it has no such label.
    pub(super) zone: Option<String>,
    /// `None` if neither a label nor the configuration names one.
    pub(super) subnet: Option<String>,
}

/// The zone, subnet and instance of a Node's endpoints.
pub(super) struct NodeLocation<'a> {
    pub(super) zone: &'a str,
    pub(super) subnet: &'a str,
    pub(super) instance: &'a str,
}

impl Facts {
    pub(super) fn of(name: &str, node: &Node, settings: &Settings) -> Self {
        let labels = node.metadata.labels.as_ref();
        let label = |name: &str| labels?.get(name).filter(|value| !value.is_empty()).cloned();
        let subnet = settings.subnet_label.as_deref().and_then(label);
        Self {
            instance: instance(node).unwrap_or(name).to_owned(),
            zone: label(ZONE_LABEL),
            subnet: subnet.or_else(|| settings.subnet.clone()),
        }
    }

    /// `None` if the location of its endpoints is unknown.
    pub(super) fn location(&self) -> Option<NodeLocation<'_>> {
        Some(NodeLocation {
            zone: self.zone.as_deref()?,
            subnet: self.subnet.as_deref()?,
            instance: &self.instance,
        })
    }
}

/// The last part of `gce://PROJECT/ZONE/INSTANCE`.
fn instance(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref()?;
    let mut parts = id.strip_prefix("gce://")?.split('/');
    let (_project, _zone, instance) = (parts.next()?, parts.next()?, parts.next()?);
    (parts.next().is_none() && !instance.is_empty()).then_some(instance)
}
