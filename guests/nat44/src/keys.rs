//! The keys under which the agent finds its configuration.

use crate::bindings::trueup::kube::types::ObjectId;

/// The label of the DNAT with identity mappings, and the end of its key.
pub(crate) const IDENTITIES: &str = "DNAT-identities";

/// The keys of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// The prefix of all NAT keys.
    pub(crate) prefix: String,
    dnats: String,
}

impl Keys {
    /// The keys of the agent with this microservice label.
    pub(crate) fn new(agent_label: &str) -> Self {
        let prefix = format!("/vnf-agent/{agent_label}/config/vpp/nat/v2/");
        let dnats = format!("{prefix}dnat44/");
        Self { prefix, dnats }
    }

    /// A service's DNAT.
    pub(crate) fn dnat(&self, id: &ObjectId) -> String {
        format!("{}{}", self.dnats, label(id))
    }

    /// The DNAT with identity mappings.
    pub(crate) fn identities(&self) -> String {
        format!("{}{IDENTITIES}", self.dnats)
    }

    /// The global configuration.
    pub(crate) fn global(&self) -> String {
        format!("{}nat44-global", self.prefix)
    }

    /// True for every DNAT, whichever writer it has.
    pub(crate) fn is_dnat(&self, key: &str) -> bool {
        key.starts_with(&self.dnats)
    }
}

/// A service's label.
pub(crate) fn label(id: &ObjectId) -> String {
    format!("{}/{}", id.namespace, id.name)
}
