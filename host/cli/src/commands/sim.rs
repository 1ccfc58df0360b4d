//! `trueup sim`: simulated servers in a process of their own.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::de::DeserializeOwned;
use trueup_base::{regular, text};
use trueup_sims::{Server, StartError, compute, lbaas};

use crate::exit::{Ending, Exit, Failure, misused};
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Lbaas(Lbaas),
    Compute(Compute),
}

pub(crate) fn exec(command: Command) -> Ending {
    match command {
        Command::Lbaas(args) => lbaas(args),
        Command::Compute(args) => compute(args),
    }
}

/// Starts a simulated Anexia Engine on loopback, and serves until it is stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Lbaas {
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

fn lbaas(args: Lbaas) -> Ending {
    let mut config: lbaas::ServerConfig = settings(args.config.as_deref())?;
    config.token = args.token.map_or(config.token, Into::into);
    if !args.load_balancers.is_empty() {
        config.load_balancers = args.load_balancers;
    }
    config.settle_ms = args.settle_ms.unwrap_or(config.settle_ms);
    config.latency_ms = args.latency_ms.unwrap_or(config.latency_ms);
    config.state_file = args.state_file.or(beside(args.config, config.state_file));
    serve(args.listen, lbaas::start(config, args.listen))
}

/// Starts a simulated Compute Engine (zonal network endpoint groups and their operations) on loopback, and serves until
/// it is stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Compute {
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

fn compute(args: Compute) -> Ending {
    let mut config: compute::ServerConfig = settings(args.config.as_deref())?;
    for text in &args.faults {
        let fault = serde_json::from_str(text).map_err(|error| {
            let why = text::line(&error.to_string());
            misused(anyhow!("--fault `{text}`: {why}"))
        });
        config.faults.push(fault?);
    }
    config.token = args.token.map(Into::into).or(config.token);
    config.operation_ms = args.operation_ms.unwrap_or(config.operation_ms);
    config.wait_ms = args.wait_ms.unwrap_or(config.wait_ms);
    config.latency_ms = args.latency_ms.unwrap_or(config.latency_ms);
    config.rate_limit_per_second = args.rate_limit_per_second.or(config.rate_limit_per_second);
    config.endpoints_max = args.endpoints_max.or(config.endpoints_max);
    config.ipv6_long |= args.ipv6_long;
    config.state_file = args.state_file.or(beside(args.config, config.state_file));
    serve(args.listen, compute::start(config, args.listen))
}

/// The settings of a server: the keys of its section of a configuration, at the top level of a TOML file.
fn settings<T: DeserializeOwned + Default>(file: Option<&Path>) -> Result<T, Failure> {
    let Some(file) = file else { return Ok(T::default()) };
    let invalid = |at: &str, why: &str| misused(anyhow!("{}{at}: {why}", file.display()));
    let content = regular::read_text(file, regular::SMALL).map_err(|error| invalid("", &text::cause(&error)))?;
    toml::from_str(&content).map_err(|error| {
        let before = content.bytes().take(error.span().unwrap_or_default().start);
        let line = 1 + before.filter(|byte| *byte == b'\n').count();
        invalid(&format!(":{line}"), &text::line(error.message()))
    })
}

/// A relative path in a file of settings is relative to that file.
fn beside(file: Option<PathBuf>, path: Option<PathBuf>) -> Option<PathBuf> {
    match file.as_deref().and_then(Path::parent) {
        Some(folder) => Some(folder.join(path?)),
        None => path,
    }
}

/// Starts a server, says where it listens, and serves until the command is stopped. An address of another machine
/// counts as misuse.
fn serve(listen: SocketAddr, starting: impl Future<Output = Result<Server, StartError>>) -> Ending {
    super::block_on(async {
        let failed = |error: StartError| match listen.ip().is_loopback() {
            true => error.into(),
            false => misused(error),
        };
        let server = starting.await.map_err(failed)?;
        output::line(&format!("listening on http://{}", server.local_addr()))?;
        super::listen_for_stop().await;
        server.stop().await;
        Ok(Exit::Done)
    })?
}
