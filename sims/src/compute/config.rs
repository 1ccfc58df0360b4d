//! The settings of a simulated Compute Engine, and those that can change while it runs.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::fault::Fault;
use crate::Token;

/// The default limit of `wait`: about that of the real one.
const WAIT_MS_DEFAULT: u64 = 120_000;

/// How a simulated Compute Engine behaves. Every setting has a default; an unknown one is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The bearer token that requests must carry. Default: any.
    pub token: Option<Token>,
    /// How long it takes until an operation takes effect, in milliseconds; 0 is at once. Default: 0.
    pub operation_ms: u64,
    /// How long `wait` blocks at most, in milliseconds. Default: 120000.
    pub wait_ms: u64,
    /// How long every answer takes, after its effect, in milliseconds. Default: 0.
    pub latency_ms: u64,
    /// Further requests in a second are refused. Default: no limit.
    pub rate_limit_per_second: Option<NonZeroU32>,
    /// The status of such a refusal: 429 or 403. Default: 429.
    pub rate_limit_status: u16,
    /// Whether such a refusal has the header `Retry-After`. Default: true.
    pub retry_after: bool,
    /// An attachment that would leave a NEG with more endpoints is refused with `quotaExceeded`. Default: no limit.
    pub endpoints_max: Option<u32>,
    /// The percentage of operations that fail, chosen by `seed` and the operation's number. Default: 0.
    pub fail_operations_percent: u8,
    /// The seed of that choice. Default: 1.
    pub seed: u64,
    /// How long the API knows finished operations, in milliseconds. Default: without end.
    pub keep_operations_ms: Option<u64>,
    /// Whether IPv6 addresses in answers are spelt with every digit. Default: false.
    pub ipv6_long: bool,
    /// Where the state is kept, and read from at the next start. Default: nowhere.
    pub state_file: Option<PathBuf>,
    /// Only reads the state file, and keeps nothing. Default: false.
    #[serde(skip)]
    pub is_trial: bool,
    /// The faults. Of several that fit a request, the first with times left happens. Default: none.
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
            is_trial: false,
            faults: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// Checks the numbers.
    pub(super) fn check(&self) -> Result<(), String> {
        let (percent, status) = (self.fail_operations_percent, self.rate_limit_status);
        if percent > 100 {
            return Err(format!("fail_operations_percent: was {percent}, must be 0 to 100"));
        }
        if !matches!(status, 403 | 429) {
            return Err(format!("rate_limit_status: was {status}, must be 403 or 429"));
        }
        Ok(())
    }

    /// The settings with `changes`.
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
        config.check()?;
        Ok(config)
    }
}

/// The settings that can change while the server runs. A missing one stays as it is.
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
