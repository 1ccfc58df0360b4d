//! The configuration of a simulated Engine.
//!
//! Only texts and numbers, and the checks that one value allows. The server finds problems with the state file or the
//! network when it starts. The address to listen on is not part of it.

use std::{collections::BTreeSet, fmt, num::NonZeroU32, path::PathBuf};

use serde::Deserialize;

use super::{faults::Fault, kinds::StateId};

/// How a simulated Engine behaves. Every setting has a default; an unknown one is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The token that requests under `/api/` must carry. Default: `simulated`.
    pub token: Token,
    /// The existing load balancers. Those in the state file keep their state there. Default: `lb-1`.
    pub load_balancers: Vec<LoadBalancer>,
    /// The milliseconds until a created or updated object is deployed; 0 means at once. Default: 0.
    pub settle_ms: u64,
    /// The delay of every answer, after its effect. Default: 0.
    pub latency_ms: u64,
    /// Above this many requests per second, the answer is 429. Default: no limit.
    pub rate_limit_per_second: Option<NonZeroU32>,
    /// Whether a 429 answer says when to retry. Default: true, with the remaining time.
    pub retry_after: RetryAfter,
    /// The seed of the objects' identifiers. Default: 1.
    pub seed: u64,
    /// Where the state is saved, and read from at the next start. Default: nowhere.
    pub state_file: Option<PathBuf>,
    /// Whether entries of resource lists name their type. Default: true.
    pub resource_type_in_lists: bool,
    /// Whether a tagging that begins during that of another resource is lost, as on the real Engine. Default: true.
    pub lose_overlapping_taggings: bool,
    /// The faults to inject. If several match a request, the first with times left applies. Default: none.
    pub faults: Vec<Fault>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            token: Token::from("simulated"),
            load_balancers: vec![LoadBalancer::from("lb-1")],
            settle_ms: 0,
            latency_ms: 0,
            rate_limit_per_second: None,
            retry_after: RetryAfter::WhenOver(true),
            seed: 1,
            state_file: None,
            resource_type_in_lists: true,
            lose_overlapping_taggings: true,
            faults: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// The first problem that no single value shows.
    pub(super) fn problem(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        self.load_balancers.iter().find_map(|balancer| {
            let identifier = &balancer.identifier;
            if identifier.is_empty() {
                Some("load_balancers: an identifier is empty".to_owned())
            } else if !seen.insert(identifier) {
                Some(format!("load_balancers: `{identifier}` is there twice"))
            } else {
                None
            }
        })
    }
}

/// A token that is hidden when a configuration is printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Whether a request with this `Authorization` header may pass.
    pub(super) fn admits(&self, authorization: Option<&[u8]>) -> bool {
        authorization.and_then(|value| value.strip_prefix(b"Token ")) == Some(self.0.as_bytes())
    }
}

impl<T: Into<String>> From<T> for Token {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A load balancer that exists from the start: its identifier alone, or a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "LoadBalancerText")]
pub struct LoadBalancer {
    /// Used as it is; real ones are 32 hexadecimal digits.
    pub identifier: String,
    /// Default: the identifier.
    pub name: String,
    /// Default: `203.0.113.1`, an address for documentation (RFC 5737).
    pub ip_address: String,
    /// Default: `3`, deployed.
    pub state: StateId,
}

impl<T: Into<String>> From<T> for LoadBalancer {
    fn from(identifier: T) -> Self {
        let identifier = identifier.into();
        Self {
            name: identifier.clone(),
            identifier,
            ip_address: "203.0.113.1".to_owned(),
            state: StateId::Deployed,
        }
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "neither an identifier nor a table of `identifier`, `name`, `ip_address` and `state`"
)]
enum LoadBalancerText {
    Identifier(String),
    Table(LoadBalancerTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadBalancerTable {
    identifier: String,
    name: Option<String>,
    ip_address: Option<String>,
    state: Option<StateId>,
}

impl From<LoadBalancerText> for LoadBalancer {
    fn from(text: LoadBalancerText) -> Self {
        match text {
            LoadBalancerText::Identifier(identifier) => Self::from(identifier),
            LoadBalancerText::Table(table) => {
                let plain = Self::from(table.identifier);
                Self {
                    name: table.name.unwrap_or(plain.name),
                    ip_address: table.ip_address.unwrap_or(plain.ip_address),
                    state: table.state.unwrap_or(plain.state),
                    identifier: plain.identifier,
                }
            }
        }
    }
}

/// The `Retry-After` header of a 429 answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "neither true, false nor a number of seconds")]
pub enum RetryAfter {
    /// True: the seconds until the limit is over, rounded up. False: no header.
    WhenOver(bool),
    /// Always this many seconds.
    Seconds(u64),
}

impl RetryAfter {
    /// The header's seconds if the limit is over in `wait_ns`.
    pub(super) fn seconds(self, wait_ns: u64) -> Option<u64> {
        match self {
            Self::WhenOver(true) => Some(wait_ns.div_ceil(1_000_000_000).max(1)),
            Self::WhenOver(false) => None,
            Self::Seconds(seconds) => Some(seconds),
        }
    }
}
