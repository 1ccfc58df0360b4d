//! Standalone simulated servers, configured by a file and flags.

mod compute;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use trueup_base::regular;
use trueup_sims::lbaas::{self, LoadBalancer, ServerConfig};
use trueup_sims::{Server, StartError};
use trueup_work::setup::SetupError;

pub use self::compute::{ComputeFlags, compute_config, start_compute};

/// The command line flags of a simulated Engine. They override the file.
#[derive(Debug, Clone, Default)]
pub struct LbaasFlags {
    /// The token it accepts. `None`: the one in the file, or else `simulated`.
    pub token: Option<String>,
    /// The identifiers of its load balancers. Empty: those in the file, or else `lb-1`.
    pub load_balancers: Vec<String>,
    /// How long a resource takes to be applied, in milliseconds.
    pub settle_ms: Option<u64>,
    /// How long each answer takes, in milliseconds.
    pub latency_ms: Option<u64>,
    /// The file with its state.
    pub state_file: Option<PathBuf>,
}

/// The settings of a simulated Engine: the keys of `[sim.lbaas]` at the top level of a TOML file, overridden by flags.
/// A relative `state_file` in the file is relative to it.
///
/// # Errors
/// One line: why the file is invalid.
pub fn lbaas_config(file: Option<&Path>, flags: LbaasFlags) -> Result<ServerConfig, SetupError> {
    let mut config = match file {
        Some(file) => read::<ServerConfig>(file)?,
        None => ServerConfig::default(),
    };
    if let Some(folder) = file.map(folder) {
        config.state_file = config.state_file.map(|state_file| folder.join(state_file));
    }
    if let Some(token) = flags.token {
        config.token = token.into();
    }
    if !flags.load_balancers.is_empty() {
        config.load_balancers = flags.load_balancers.into_iter().map(LoadBalancer::from).collect();
    }
    config.settle_ms = flags.settle_ms.unwrap_or(config.settle_ms);
    config.latency_ms = flags.latency_ms.unwrap_or(config.latency_ms);
    config.state_file = flags.state_file.or(config.state_file);
    Ok(config)
}

/// Starts a simulated Engine.
///
/// # Errors
/// One line: why it can't listen, or its state can't be read.
pub async fn start_lbaas(config: ServerConfig, listen: SocketAddr) -> Result<Server, SetupError> {
    let started = lbaas::start(config, listen).await;
    started.map_err(|error| not_started(listen, error))
}

/// Why a server did not start. An address of another machine counts as misuse.
fn not_started(listen: SocketAddr, error: StartError) -> SetupError {
    if listen.ip().is_loopback() {
        SetupError::failed(error)
    } else {
        SetupError::misused(error)
    }
}

/// A server's settings in a TOML file.
fn read<T: DeserializeOwned>(file: &Path) -> Result<T, SetupError> {
    let unreadable = |error| SetupError::Misused(format!("{}: {}", file.display(), trueup_base::text::cause(&error)));
    let text = regular::read_text(file, regular::SMALL).map_err(unreadable)?;
    toml::from_str(&text).map_err(|error| {
        let before = text.bytes().take(error.span().unwrap_or_default().start);
        let line = 1 + before.filter(|byte| *byte == b'\n').count();
        let what = trueup_base::text::line(error.message());
        SetupError::Misused(format!("{}:{line}: {what}", file.display()))
    })
}

/// The folder for relative paths in a file.
fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}
