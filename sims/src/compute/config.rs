//! The settings of a simulated Compute Engine.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Deserialize;

use crate::{Fault, Token};

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
    /// Whether such a refusal has the header `Retry-After`. Default: true.
    pub retry_after: bool,
    /// An attachment that would leave a NEG with more endpoints is refused with `quotaExceeded`. Default: no limit.
    pub endpoints_max: Option<u32>,
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
            // About that of the real one.
            wait_ms: 120_000,
            latency_ms: 0,
            rate_limit_per_second: None,
            retry_after: true,
            endpoints_max: None,
            ipv6_long: false,
            state_file: None,
            is_trial: false,
            faults: Vec::new(),
        }
    }
}
