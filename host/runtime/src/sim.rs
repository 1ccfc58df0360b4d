//! Standalone simulated servers, configured by a file.

mod compute;

use std::net::SocketAddr;
use std::path::Path;

use serde::de::DeserializeOwned;
use trueup_base::regular;
pub use trueup_sims::Server;
use trueup_sims::StartError;
use trueup_sims::lbaas::{self, ServerConfig};
use trueup_work::setup::SetupError;

pub use self::compute::{compute_config, start_compute};

/// The settings of a simulated Engine: the keys of `[sim.lbaas]` at the top level of a TOML file. A
/// relative `state_file` in the file is relative to it.
///
/// # Errors
/// One line: why the file is invalid.
pub fn lbaas_config(file: Option<&Path>) -> Result<ServerConfig, SetupError> {
    let mut config = match file {
        Some(file) => read::<ServerConfig>(file)?,
        None => ServerConfig::default(),
    };
    if let Some(folder) = file.map(folder) {
        config.state_file = config.state_file.map(|state_file| folder.join(state_file));
    }
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
