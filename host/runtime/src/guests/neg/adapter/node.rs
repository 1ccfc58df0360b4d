//! What a Node is to NEGs: an instance of Compute Engine in a zone and a subnet.

use k8s_openapi::api::core::v1::Node;

use super::{Settings, ZONE_LABEL};

/// What of a Node matters here. A Node that reports itself every few seconds stays equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The instance's name: what a NEG knows it by.
    pub(super) instance: String,
    /// None: it has no label for it.
    pub(super) zone: Option<String>,
    /// None: neither a label nor the configuration names one.
    pub(super) subnet: Option<String>,
}

/// Where a Node's endpoints belong: zone, subnet and instance.
pub(super) struct Spot<'a> {
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

    /// None: it can't be said where endpoints on it belong.
    pub(super) fn spot(&self) -> Option<Spot<'_>> {
        Some(Spot {
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
