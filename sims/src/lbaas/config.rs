//! The settings of a simulated Engine.
//!
//! Only values and their checks. Problems with the state file or the network show when the server starts. The address
//! to listen on is not a setting.

use std::{collections::BTreeSet, num::NonZeroU32, path::PathBuf};

use serde::Deserialize;

use super::{Fault, kinds::StateId};
use crate::Token;
use crate::base::refusal::retry_after_s;

/// How a simulated Engine behaves. Every setting has a default; an unknown one is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The token that requests under `/api/` must carry. Default: `simulated`.
    pub token: Token,
    /// The load balancers that exist; those in the state file are kept as they are there. Default: `lb-1`.
    pub load_balancers: Vec<LoadBalancer>,
    /// How long it takes to deploy a created or updated object; 0 is at once. Default: 0.
    pub settle_ms: u64,
    /// How long every answer takes, after its effect. Default: 0.
    pub latency_ms: u64,
    /// Further requests in a second are answered 429. Default: no limit.
    pub rate_limit_per_second: Option<NonZeroU32>,
    /// The header `Retry-After` of an answer 429. Default: true, the time that is left.
    pub retry_after: RetryAfter,
    /// The seed of the objects' identifiers. Default: 1.
    pub seed: u64,
    /// Where the state is kept, and read from at the next start. Default: nowhere.
    pub state_file: Option<PathBuf>,
    /// Only reads the state file, and keeps nothing. Default: false.
    #[serde(skip)]
    pub is_trial: bool,
    /// Whether entries of resource lists name their type. Default: true.
    pub resource_type_in_lists: bool,
    /// Whether a tagging is lost that begins while a tagging of another resource is in flight, as on the real Engine.
    /// Default: true.
    pub lose_overlapping_taggings: bool,
    /// The faults. Of several that fit a request, the first with times left happens. Default: none.
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
            is_trial: false,
            resource_type_in_lists: true,
            lose_overlapping_taggings: true,
            faults: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// Finds the first problem that no single value shows.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for LoadBalancer { identifier, .. } in &self.load_balancers {
            if identifier.is_empty() {
                return Err("load_balancers: an identifier is empty".to_owned());
            }
            if !seen.insert(identifier) {
                return Err(format!("load_balancers: `{identifier}` is there twice"));
            }
        }
        Ok(())
    }
}

/// A load balancer that exists from the start: its identifier alone, or a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "LoadBalancerText")]
pub struct LoadBalancer {
    /// Taken as it is; real ones are 32 hexadecimal digits.
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

/// The header `Retry-After` of an answer 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "neither true, false nor a number of seconds")]
pub enum RetryAfter {
    /// True: the seconds until the limit is over, rounded up. False: there is no such header.
    WhenOver(bool),
    /// Always this many seconds.
    Seconds(u64),
}

impl RetryAfter {
    /// The header's seconds if the limit ends in `wait_ns`.
    pub(super) fn seconds(self, wait_ns: u64) -> Option<u64> {
        match self {
            Self::WhenOver(true) => Some(retry_after_s(wait_ns)),
            Self::WhenOver(false) => None,
            Self::Seconds(seconds) => Some(seconds),
        }
    }
}
