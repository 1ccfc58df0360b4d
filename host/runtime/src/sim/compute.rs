//! A simulated Compute Engine from a file.

use std::net::SocketAddr;
use std::path::Path;

use trueup_sims::Server;
use trueup_sims::compute::{self, ServerConfig};
use trueup_work::setup::SetupError;

/// The settings of a simulated Compute Engine: the keys of `[sim.compute]` at the top level of a TOML file. A
/// relative `state_file` in the file is relative to it.
///
/// # Errors
/// One line: why the file is invalid.
pub fn compute_config(file: Option<&Path>) -> Result<ServerConfig, SetupError> {
    let mut config = match file {
        Some(file) => super::read::<ServerConfig>(file)?,
        None => ServerConfig::default(),
    };
    if let Some(folder) = file.map(super::folder) {
        config.state_file = config.state_file.map(|state_file| folder.join(state_file));
    }
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
