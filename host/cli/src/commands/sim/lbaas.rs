//! `trueup sim lbaas`: a simulated Anexia Engine.

use std::net::SocketAddr;
use std::path::PathBuf;

use trueup_sims::lbaas::{self, ServerConfig};

use crate::exit::Ending;

/// Starts a simulated Anexia Engine on loopback, and serves until it is stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9480")]
    listen: SocketAddr,
    /// A TOML file with any of the keys of `[sim.lbaas]`; flags override it.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The token that it accepts. Default: `simulated`.
    #[arg(long, env = "TRUEUP_LBAAS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// A load balancer that it has; may be given several times. Default: lb-1.
    #[arg(long = "load-balancer")]
    load_balancers: Vec<String>,
    /// How long it takes to apply a resource, in milliseconds.
    #[arg(long)]
    settle_ms: Option<u64>,
    /// How long each answer takes, in milliseconds.
    #[arg(long)]
    latency_ms: Option<u64>,
    /// Where it keeps its state. Default: none, the state is lost at the end.
    #[arg(long)]
    state_file: Option<PathBuf>,
}

pub(crate) fn exec(args: Args) -> Ending {
    let mut config = super::settings(args.config.as_deref(), |config: &mut ServerConfig| {
        &mut config.state_file
    })?;
    config.token = args.token.map_or(config.token, Into::into);
    if !args.load_balancers.is_empty() {
        config.load_balancers = args.load_balancers;
    }
    config.settle_ms = args.settle_ms.unwrap_or(config.settle_ms);
    config.latency_ms = args.latency_ms.unwrap_or(config.latency_ms);
    config.state_file = args.state_file.or(config.state_file);
    super::serve(args.listen, lbaas::start(config, args.listen))
}
