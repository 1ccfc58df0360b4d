//! `trueup sim compute`: a simulated Compute Engine.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use trueup_sims::compute::{self, ServerConfig};

use crate::exit::{Ending, misused};

/// Starts a simulated Compute Engine (zonal network endpoint groups and their operations) on loopback, and serves until
/// it is stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9481")]
    listen: SocketAddr,
    /// A TOML file with any of the keys of `[sim.compute]`; flags override it.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The bearer token that it accepts. Default: any.
    #[arg(long, env = "TRUEUP_COMPUTE_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// How long an operation takes, in milliseconds. Default: 0.
    #[arg(long)]
    operation_ms: Option<u64>,
    /// How long a request to wait for an operation blocks at most, in milliseconds. Default: 120000.
    #[arg(long)]
    wait_ms: Option<u64>,
    /// How long each answer takes, in milliseconds.
    #[arg(long)]
    latency_ms: Option<u64>,
    /// Requests a second; it refuses more.
    #[arg(long)]
    rate_limit_per_second: Option<NonZeroU32>,
    /// Endpoints in a NEG; it refuses an attachment that would leave more.
    #[arg(long)]
    endpoints_max: Option<u32>,
    /// Spells IPv6 addresses with every digit.
    #[arg(long)]
    ipv6_long: bool,
    /// A fault to inject, as JSON; may be given several times.
    #[arg(long = "fault", value_name = "JSON")]
    faults: Vec<String>,
    /// Where it keeps its state. Default: none, the state is lost at the end.
    #[arg(long)]
    state_file: Option<PathBuf>,
}

pub(crate) fn exec(args: Args) -> Ending {
    let mut config = super::settings(args.config.as_deref(), |config: &mut ServerConfig| {
        &mut config.state_file
    })?;
    for text in &args.faults {
        let wrong = |error: serde_json::Error| {
            let why = trueup_base::text::line(&error.to_string());
            misused(anyhow::anyhow!("--fault `{text}`: {why}"))
        };
        config.faults.push(serde_json::from_str(text).map_err(wrong)?);
    }
    config.token = args.token.map(Into::into).or(config.token);
    config.operation_ms = args.operation_ms.unwrap_or(config.operation_ms);
    config.wait_ms = args.wait_ms.unwrap_or(config.wait_ms);
    config.latency_ms = args.latency_ms.unwrap_or(config.latency_ms);
    config.rate_limit_per_second = args.rate_limit_per_second.or(config.rate_limit_per_second);
    config.endpoints_max = args.endpoints_max.or(config.endpoints_max);
    config.ipv6_long |= args.ipv6_long;
    config.state_file = args.state_file.or(config.state_file);
    super::serve(args.listen, compute::start(config, args.listen))
}
