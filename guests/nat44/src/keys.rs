//! The keys under which the agent finds its configuration.

use crate::bindings::trueup::kube::types::ObjectId;

/// The label of the DNAT with identity mappings, and the end of its key.
pub const IDENTITIES: &str = "DNAT-identities";

/// The keys of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The prefix of all NAT keys.
    pub prefix: String,
    dnats: String,
}

impl Keys {
    /// The keys of the agent with this microservice label.
    #[must_use]
    pub fn new(agent_label: &str) -> Self {
        let prefix = format!("/vnf-agent/{agent_label}/config/vpp/nat/v2/");
        let dnats = format!("{prefix}dnat44/");
        Self { prefix, dnats }
    }

    /// A service's DNAT.
    #[must_use]
    pub fn dnat(&self, id: &ObjectId) -> String {
        format!("{}{}", self.dnats, label(id))
    }

    /// The DNAT with identity mappings.
    #[must_use]
    pub fn identities(&self) -> String {
        format!("{}{IDENTITIES}", self.dnats)
    }

    /// The global configuration.
    #[must_use]
    pub fn global(&self) -> String {
        format!("{}nat44-global", self.prefix)
    }

    /// True for every DNAT, whichever writer it has.
    #[must_use]
    pub fn is_dnat(&self, key: &str) -> bool {
        key.starts_with(&self.dnats)
    }
}

/// A service's label.
#[must_use]
pub fn label(id: &ObjectId) -> String {
    format!("{}/{}", id.namespace, id.name)
}
