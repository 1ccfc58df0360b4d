//! The settings of a simulated Engine.
//!
//! Only values and their checks. Problems with the state file or the network show when the server starts. The address
//! to listen on is not a setting.

use std::{collections::BTreeSet, num::NonZeroU32, path::PathBuf};

use serde::Deserialize;

use crate::{Fault, Token};

/// How a simulated Engine behaves. Every setting has a default; an unknown one is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The token that requests under `/api/` must carry. Default: `simulated`.
    pub token: Token,
    /// The identifiers of the load balancers that exist; those in the state file are kept as they are there. Real
    /// identifiers are 32 hexadecimal digits. Default: `lb-1`.
    pub load_balancers: Vec<String>,
    /// How long it takes to deploy a created or updated object; 0 is at once. Default: 0.
    pub settle_ms: u64,
    /// How long every answer takes, after its effect. Default: 0.
    pub latency_ms: u64,
    /// Further requests in a second are answered 429. Default: no limit.
    pub rate_limit_per_second: Option<NonZeroU32>,
    /// Whether such an answer has the header `Retry-After`. Default: true.
    pub retry_after: bool,
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
            load_balancers: vec!["lb-1".to_owned()],
            settle_ms: 0,
            latency_ms: 0,
            rate_limit_per_second: None,
            retry_after: true,
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
        for identifier in &self.load_balancers {
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
