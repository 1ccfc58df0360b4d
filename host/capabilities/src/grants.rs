//! What a guest may access: capabilities, read or write, and the scope.
//!
//! Every guest has log, clock, timers, randomness and metrics; everything else is granted by name.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The scope that covers everything.
pub const EVERYTHING: &str = "*";

/// The only scope of `checkpoint`: the instance's own storage.
pub const OWN: &str = "own";

/// The only scope of `cri`: the running sandboxes of the container runtime.
pub const SANDBOXES: &str = "sandboxes";

/// The capability for network endpoint groups. Its scopes are [`neg_scope`]s, in which name and zone may end with `*`.
pub const NEG: &str = "neg";

/// The capability for etcd's keys. Its scopes are prefixes of keys.
pub const ETCD: &str = "etcd";

/// The capability for the kernel's packet filter. Its scopes are tables, as `FAMILY NAME`.
pub const NFTABLES: &str = "nftables";

/// The valid families of a table: nft(8), "address families".
pub const NFTABLES_FAMILIES: [&str; 6] = ["arp", "bridge", "inet", "ip", "ip6", "netdev"];

/// The scope of one NEG: `NAME@ZONE`. Names and zones of Compute Engine never contain `@`.
pub fn neg_scope(name: &str, zone: &str) -> String {
    format!("{name}@{zone}")
}

/// Whether a text is a scope of [`NEG`]: `*`, or `NAME@ZONE`, where each part may be `*` or end with it.
pub fn is_neg_scope(text: &str) -> bool {
    /// A `*` anywhere else would look like a wildcard.
    fn is_part(part: &str) -> bool {
        let name = part.strip_suffix('*').unwrap_or(part);
        !part.is_empty() && !name.contains(['*', '@'])
    }
    let parts = text.split_once('@');
    text == EVERYTHING || parts.is_some_and(|(name, zone)| is_part(name) && is_part(zone))
}

/// Whether a text is a scope of [`ETCD`]: `*`, or a prefix of keys. A `*` within a prefix would look like a wildcard,
/// and an empty prefix like no grant.
pub fn is_etcd_scope(text: &str) -> bool {
    text == EVERYTHING || (!text.is_empty() && !text.contains('*'))
}

/// Whether a text is a scope of [`NFTABLES`]: `*`, or `FAMILY TABLE`. A `*` in a table's name would look like a
/// wildcard. The kernel allows blanks in names; other programs do not.
pub fn is_nftables_scope(text: &str) -> bool {
    let is_table = |name: &str| !name.is_empty() && !name.contains(|c: char| c == '*' || c.is_whitespace());
    let is_known = |(family, table)| NFTABLES_FAMILIES.contains(&family) && is_table(table);
    text == EVERYTHING || text.split_once(' ').is_some_and(is_known)
}

/// Whether a granted name or zone covers this one.
fn covers(granted: &str, part: &str) -> bool {
    match granted.strip_suffix('*') {
        Some(beginning) => part.starts_with(beginning),
        None => part == granted,
    }
}

/// The grants of one guest. The default grants nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(BTreeMap<String, Grant>);

/// The grant of one capability. Each list holds identifiers, or `*` for everything. An absent quota sets no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Grant {
    /// The scopes that the guest may read.
    pub read: BTreeSet<String>,
    /// The scopes that the guest may change.
    pub write: BTreeSet<String>,
    /// The number of requests that the guest may make per minute, over all its instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_minute: Option<u32>,
    /// For `lbaas`: the number of objects that one call may destroy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroy_max: Option<u32>,
    /// For `lbaas`: the percentage of the objects seen by a call that it may destroy. Does not apply if the call's
    /// desired state is that nothing remains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroy_percent: Option<u8>,
}

/// Reading or changing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A request that changes nothing.
    Read,
    /// A request that changes something.
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
    /// The grants of a configuration, by capability.
    pub fn new(by_capability: BTreeMap<String, Grant>) -> Self {
        Self(by_capability)
    }

    /// The grant of `capability`; `None` if there is none.
    pub fn grant(&self, capability: &str) -> Option<&Grant> {
        self.0.get(capability)
    }

    /// All grants, by capability.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Grant)> {
        self.0.iter().map(|(capability, grant)| (capability.as_str(), grant))
    }

    /// Returns true if the guest may access `scope` this way.
    pub fn allow(&self, capability: &str, access: Access, scope: &str) -> bool {
        self.allow_by(capability, access, |granted| granted == scope)
    }

    /// Returns true if the guest may access at least one scope this way.
    pub fn allow_some(&self, capability: &str, access: Access) -> bool {
        self.allow_by(capability, access, |_| true)
    }

    /// Returns true if the guest may access every scope this way, so that the caller need not determine the scope.
    pub fn allow_all(&self, capability: &str, access: Access) -> bool {
        self.allow_by(capability, access, |_| false)
    }

    /// Returns true if the guest may access the NEG with this name and zone this way. The grant is checked for name and
    /// zone separately: no name of a NEG can change its zone.
    pub fn allow_neg(&self, access: Access, name: &str, zone: &str) -> bool {
        self.allow_by(NEG, access, |scope| {
            let parts = scope.split_once('@');
            parts.is_some_and(|(names, zones)| covers(names, name) && covers(zones, zone))
        })
    }

    /// Returns true if the guest may access this key, and all that begin with it, this way.
    pub fn allow_etcd(&self, access: Access, key: &str) -> bool {
        self.allow_by(ETCD, access, |prefix| key.starts_with(prefix))
    }

    /// Whether a granted scope is `*`, or covers what is asked for.
    fn allow_by(&self, capability: &str, access: Access, covers: impl Fn(&str) -> bool) -> bool {
        let scopes = self.grant(capability).map(|grant| match access {
            Access::Read => &grant.read,
            Access::Write => &grant.write,
        });
        scopes.is_some_and(|scopes| scopes.iter().any(|scope| scope == EVERYTHING || covers(scope)))
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

    #[test]
    fn negs_are_granted_by_name_and_zone() {
        let granted = |scopes: &[&str], name: &str, zone: &str| {
            let write = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            let grant = Grant {
                write,
                ..Grant::default()
            };
            let grants = Grants::new([(NEG.to_owned(), grant)].into());
            assert!(!grants.allow_neg(Access::Read, name, zone), "writing is not reading");
            grants.allow_neg(Access::Write, name, zone)
        };
        for scopes in [
            &["web@z1"] as &[_],
            &["web@*"],
            &["*@z1"],
            &["*"],
            &["*@*"],
            &["w*@z*"],
            &["other@z1", "web@z1"],
        ] {
            assert!(granted(scopes, "web", "z1"), "{scopes:?}");
        }
        for scopes in [
            &[] as &[_],
            &["web@z2"],
            &["we@z1"],
            &["web2@z1"],
            &["x*@z1"],
            &["web@z1a*"],
            &["web"],
        ] {
            assert!(!granted(scopes, "web", "z1"), "{scopes:?}");
        }
        assert!(!granted(&["a@*"], "a@z1", "z2"), "a name with an @ is no other zone");
        assert!(!granted(&["a@z1@z2"], "a@z1", "z2"));
        assert!(Grants::everything().allow_neg(Access::Write, "web", "z1"));
        assert!(!Grants::default().allow_neg(Access::Read, "web", "z1"));
    }

    #[test]
    fn keys_of_etcd_are_granted_by_prefix() {
        let grant = Grant {
            read: ["/a/".to_owned()].into(),
            write: ["/a/b".to_owned(), EVERYTHING.to_owned()].into(),
            ..Grant::default()
        };
        let grants = Grants::new([(ETCD.to_owned(), grant)].into());
        for (key, read) in [
            ("/a/", true),
            ("/a/b", true),
            ("/a", false),
            ("", false),
            ("/b/a/", false),
        ] {
            assert_eq!(grants.allow_etcd(Access::Read, key), read, "{key}");
            assert!(grants.allow_etcd(Access::Write, key), "{key}");
        }
        assert!(!Grants::default().allow_etcd(Access::Read, "/a/"));
        assert!(Grants::everything().allow_etcd(Access::Read, ""));
        for scope in ["*", "/a/", "a"] {
            assert!(is_etcd_scope(scope), "{scope}");
        }
        for scope in ["", "/a/*", "**"] {
            assert!(!is_etcd_scope(scope), "{scope}");
        }
    }

    #[test]
    fn a_scope_of_nftables_is_a_table_with_its_family() {
        for scope in ["*", "ip trueup", "ip6 trueup", "inet a-b.c/d"] {
            assert!(is_nftables_scope(scope), "{scope}");
        }
        for scope in [
            "", "ip", "trueup", "ip ", " trueup", "ip  a", "ip a b", "ip a ", "ip *", "* a", "IP a", "ip a*",
        ] {
            assert!(!is_nftables_scope(scope), "{scope}");
        }
    }

    #[test]
    fn a_scope_of_negs_has_a_name_and_a_zone() {
        for scope in ["*", "web@z1", "*@z1", "web@*", "trueup-*@europe-west1-*", "*@*"] {
            assert!(is_neg_scope(scope), "{scope}");
        }
        for scope in ["", "web", "web@", "@z1", "we*b@z1", "**@z1", "web@z1@z2", "*@"] {
            assert!(!is_neg_scope(scope), "{scope}");
        }
    }
}
