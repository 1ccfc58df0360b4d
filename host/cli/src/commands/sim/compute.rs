//! `trueup sim compute`: a simulated Compute Engine.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use trueup_runtime::sim;

use crate::exit::{Ending, Exit};

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
    /// Percentage of operations that fail.
    #[arg(long)]
    fail_operations_percent: Option<u8>,
    /// The seed of random choices. Default: 1.
    #[arg(long)]
    seed: Option<u64>,
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
    let flags = sim::ComputeFlags {
        token: args.token,
        operation_ms: args.operation_ms,
        wait_ms: args.wait_ms,
        latency_ms: args.latency_ms,
        rate_limit_per_second: args.rate_limit_per_second,
        endpoints_max: args.endpoints_max,
        fail_operations_percent: args.fail_operations_percent,
        seed: args.seed,
        ipv6_long: args.ipv6_long,
        faults: args.faults,
        state_file: args.state_file,
    };
    let config = sim::compute_config(args.config.as_deref(), flags)?;
    crate::commands::block_on(async {
        let compute = sim::start_compute(config, args.listen).await?;
        super::say_address(compute.local_addr())?;
        crate::commands::stopped().await;
        compute.stop().await;
        Ok(Exit::Done)
    })?
}
