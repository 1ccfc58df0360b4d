//! What a guest may touch: capabilities, read or write, and in which scope.
//!
//! Log, clock, timers, randomness and metrics are always given; everything else is granted by name.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The scope that holds everything.
pub const EVERYTHING: &str = "*";

/// The one scope of `checkpoint`: the instance's own storage.
pub const OWN: &str = "own";

/// The one scope of `cri`: the running sandboxes of the container runtime.
pub const SANDBOXES: &str = "sandboxes";

/// What may be granted beyond log, clock, timers, random and metrics: `checkpoint` (its scope is [`OWN`]), `cri` (its
/// scope is [`SANDBOXES`]), and `lbaas`, scoped by load balancer identifiers.
pub const CAPABILITIES: [&str; 3] = ["checkpoint", "cri", "lbaas"];

/// What one guest is granted. The default grants nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(BTreeMap<String, Grant>);

/// What is granted of one capability; each list holds identifiers, or `*` for everything. Quotas that are absent limit
/// nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Grant {
    /// What may be read.
    pub read: BTreeSet<String>,
    /// What may be changed.
    pub write: BTreeSet<String>,
    /// So many questions the guest may ask within a minute, all its instances together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_minute: Option<u32>,
    /// Of `lbaas`: so many objects one call may destroy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroy_max: Option<u32>,
    /// Of `lbaas`: so much of the objects that a call has seen it may destroy, in percent. Does not hold for a call whose
    /// desired state is that nothing is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroy_percent: Option<u8>,
}

/// Reading or changing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Asks, and changes nothing.
    Read,
    /// Changes something.
    Write,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

impl Grants {
    /// The grants of a configuration: capability to grant.
    pub fn new(by_capability: BTreeMap<String, Grant>) -> Self {
        Self(by_capability)
    }

    /// Grants everything: for scenarios, and for replays, where nothing is touched.
    pub fn everything() -> Self {
        let all = Grant {
            read: [EVERYTHING.to_owned()].into(),
            write: [EVERYTHING.to_owned()].into(),
            ..Grant::default()
        };
        Self(
            CAPABILITIES
                .iter()
                .map(|&capability| (capability.to_owned(), all.clone()))
                .collect(),
        )
    }

    /// What is granted of `capability`; none: nothing.
    pub fn grant(&self, capability: &str) -> Option<&Grant> {
        self.0.get(capability)
    }

    /// Everything that is granted, by capability.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Grant)> {
        self.0.iter().map(|(capability, grant)| (capability.as_str(), grant))
    }

    /// True where `scope` may be accessed in this way.
    pub fn allow(&self, capability: &str, access: Access, scope: &str) -> bool {
        self.scopes(capability, access)
            .is_some_and(|scopes| scopes.contains(EVERYTHING) || scopes.contains(scope))
    }

    /// True where any scope may be accessed in this way.
    pub fn allow_some(&self, capability: &str, access: Access) -> bool {
        self.scopes(capability, access).is_some_and(|scopes| !scopes.is_empty())
    }

    /// True where every scope may be accessed in this way, so that nobody needs to find out the scope.
    pub fn allow_all(&self, capability: &str, access: Access) -> bool {
        self.scopes(capability, access)
            .is_some_and(|scopes| scopes.contains(EVERYTHING))
    }

    fn scopes(&self, capability: &str, access: Access) -> Option<&BTreeSet<String>> {
        let grant = self.grant(capability)?;
        Some(match access {
            Access::Read => &grant.read,
            Access::Write => &grant.write,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_granted_unless_it_is_named() {
        let none = Grants::default();
        assert!(!none.allow("lbaas", Access::Read, "lb-1"));
        assert!(!none.allow_some("lbaas", Access::Read));

        let one = Grants::new(
            [(
                "lbaas".to_owned(),
                Grant {
                    read: ["lb-1".to_owned()].into(),
                    ..Grant::default()
                },
            )]
            .into(),
        );
        assert!(one.allow("lbaas", Access::Read, "lb-1"));
        assert!(!one.allow("lbaas", Access::Read, "lb-2"));
        assert!(!one.allow("lbaas", Access::Write, "lb-1"), "reading is not changing");
        assert!(one.allow_some("lbaas", Access::Read) && !one.allow_all("lbaas", Access::Read));

        let all = Grants::everything();
        assert!(all.allow("lbaas", Access::Write, "lb-9") && all.allow_all("lbaas", Access::Write));
    }
}
