//! A simulated Compute Engine from a file and flags.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use trueup_sims::Server;
use trueup_sims::compute::{self, Fault, ServerConfig};
use trueup_work::setup::SetupError;

/// The command line flags of a simulated Compute Engine. They override the file. `None` means the value in the file, or
/// else the default.
#[derive(Debug, Clone, Default)]
pub struct ComputeFlags {
    /// The bearer token it accepts.
    pub token: Option<String>,
    /// How long an operation takes, in milliseconds.
    pub operation_ms: Option<u64>,
    /// How long `wait` blocks at most, in milliseconds.
    pub wait_ms: Option<u64>,
    /// How long each answer takes, in milliseconds.
    pub latency_ms: Option<u64>,
    /// The maximum number of requests per second.
    pub rate_limit_per_second: Option<NonZeroU32>,
    /// The maximum number of endpoints in a NEG.
    pub endpoints_max: Option<u32>,
    /// The percentage of operations that fail.
    pub fail_operations_percent: Option<u8>,
    /// The seed of its random choices.
    pub seed: Option<u64>,
    /// Whether it writes IPv6 addresses with all digits.
    pub ipv6_long: bool,
    /// Faults to inject, each as JSON, after those in the file.
    pub faults: Vec<String>,
    /// The file with its state.
    pub state_file: Option<PathBuf>,
}

/// The settings of a simulated Compute Engine: the keys of `[sim.compute]` at the top level of a TOML file, overridden
/// by flags. A relative `state_file` in the file is relative to it.
///
/// # Errors
/// One line: why the file or a fault is invalid.
pub fn compute_config(file: Option<&Path>, flags: ComputeFlags) -> Result<ServerConfig, SetupError> {
    let mut config = match file {
        Some(file) => super::read::<ServerConfig>(file)?,
        None => ServerConfig::default(),
    };
    if let Some(folder) = file.map(super::folder) {
        config.state_file = config.state_file.map(|state_file| folder.join(state_file));
    }
    for text in &flags.faults {
        let fault: Fault = serde_json::from_str(text).map_err(|error| {
            SetupError::Misused(format!(
                "--fault `{text}`: {}",
                trueup_base::text::line(&error.to_string())
            ))
        })?;
        config.faults.push(fault);
    }
    config.token = flags.token.map(Into::into).or(config.token);
    config.operation_ms = flags.operation_ms.unwrap_or(config.operation_ms);
    config.wait_ms = flags.wait_ms.unwrap_or(config.wait_ms);
    config.latency_ms = flags.latency_ms.unwrap_or(config.latency_ms);
    config.rate_limit_per_second = flags.rate_limit_per_second.or(config.rate_limit_per_second);
    config.endpoints_max = flags.endpoints_max.or(config.endpoints_max);
    config.fail_operations_percent = flags.fail_operations_percent.unwrap_or(config.fail_operations_percent);
    config.seed = flags.seed.unwrap_or(config.seed);
    config.ipv6_long |= flags.ipv6_long;
    config.state_file = flags.state_file.or(config.state_file);
    Ok(config)
}

/// Starts a simulated Compute Engine.
///
/// # Errors
/// One line: why it can't listen, or its state can't be read.
pub async fn start_compute(config: ServerConfig, listen: SocketAddr) -> Result<Server, SetupError> {
    let started = compute::start(config, listen).await;
    started.map_err(|error| super::not_started(listen, error))
}
