//! The configuration of a simulated Compute Engine, and the settings that can change while it runs.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::faults::Fault;

/// The default maximum time that `wait` blocks: about that of the real one.
const WAIT_MS_DEFAULT: u64 = 120_000;

/// How a simulated Compute Engine behaves. Every setting has a default; an unknown one is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The bearer token that requests must carry. Default: any.
    pub token: Option<Token>,
    /// The milliseconds until an operation takes effect; 0 means at once. Default: 0.
    pub operation_ms: u64,
    /// The maximum milliseconds that `wait` blocks. Default: 120000.
    pub wait_ms: u64,
    /// The delay of every answer, after its effect, in milliseconds. Default: 0.
    pub latency_ms: u64,
    /// Above this many requests per second, the server refuses. Default: no limit.
    pub rate_limit_per_second: Option<NonZeroU32>,
    /// The status of such a refusal: 429, or 403. Default: 429.
    pub rate_limit_status: u16,
    /// Whether a rate-limit refusal has a `Retry-After`. Default: true.
    pub retry_after: bool,
    /// The server refuses an attachment with `quotaExceeded` if the NEG would have more endpoints. Default: no limit.
    pub endpoints_max: Option<u32>,
    /// The percentage of operations that fail, chosen by `seed` and the operation's number. Default: 0.
    pub fail_operations_percent: u8,
    /// The seed for random choices. Default: 1.
    pub seed: u64,
    /// The milliseconds after which finished operations are forgotten. Default: never.
    pub keep_operations_ms: Option<u64>,
    /// Whether answers spell IPv6 addresses with every digit. Default: false.
    pub ipv6_long: bool,
    /// Where the state is saved, and read from at the next start. Default: nowhere.
    pub state_file: Option<PathBuf>,
    /// The faults to inject. If several match a request, the first with times left applies. Default: none.
    pub faults: Vec<Fault>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            token: None,
            operation_ms: 0,
            wait_ms: WAIT_MS_DEFAULT,
            latency_ms: 0,
            rate_limit_per_second: None,
            rate_limit_status: 429,
            retry_after: true,
            endpoints_max: None,
            fail_operations_percent: 0,
            seed: 1,
            keep_operations_ms: None,
            ipv6_long: false,
            state_file: None,
            faults: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// The first problem with the numbers.
    pub(super) fn problem(&self) -> Option<String> {
        if self.fail_operations_percent > 100 {
            let was = self.fail_operations_percent;
            return Some(format!("fail_operations_percent: was {was}, must be 0 to 100"));
        }
        if !matches!(self.rate_limit_status, 403 | 429) {
            let was = self.rate_limit_status;
            return Some(format!("rate_limit_status: was {was}, must be 403 or 429"));
        }
        None
    }

    /// The settings after applying `changes`.
    pub(super) fn changed(&self, changes: Changes) -> Result<Self, String> {
        let mut config = self.clone();
        config.operation_ms = changes.operation_ms.unwrap_or(config.operation_ms);
        config.wait_ms = changes.wait_ms.unwrap_or(config.wait_ms);
        config.latency_ms = changes.latency_ms.unwrap_or(config.latency_ms);
        config.endpoints_max = changes.endpoints_max.or(config.endpoints_max);
        config.fail_operations_percent = changes
            .fail_operations_percent
            .unwrap_or(config.fail_operations_percent);
        config.ipv6_long = changes.ipv6_long.unwrap_or(config.ipv6_long);
        match config.problem() {
            Some(problem) => Err(problem),
            None => Ok(config),
        }
    }
}

/// The settings that can change while the server runs; missing ones keep their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Changes {
    operation_ms: Option<u64>,
    wait_ms: Option<u64>,
    latency_ms: Option<u64>,
    endpoints_max: Option<u32>,
    fail_operations_percent: Option<u8>,
    ipv6_long: Option<bool>,
}

impl From<&ServerConfig> for Changes {
    fn from(config: &ServerConfig) -> Self {
        Self {
            operation_ms: Some(config.operation_ms),
            wait_ms: Some(config.wait_ms),
            latency_ms: Some(config.latency_ms),
            endpoints_max: config.endpoints_max,
            fail_operations_percent: Some(config.fail_operations_percent),
            ipv6_long: Some(config.ipv6_long),
        }
    }
}

/// A token that is hidden when a configuration is printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Whether this is the token.
    pub(super) fn is(&self, token: &[u8]) -> bool {
        self.0.as_bytes() == token
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
