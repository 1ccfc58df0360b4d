//! Which running host `status` and `top` ask: by its configuration, its state folder, or its admin address.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use trueup_runtime::control::{Client, ClientError};

use crate::exit::{Failure, misused};

/// The host to ask.
#[derive(Debug, clap::Args)]
pub(super) struct Reach {
    /// The configuration of the host: a TOML file, or a folder with `trueup.toml`. The command asks its control socket.
    #[arg(long, default_value = ".")]
    config: PathBuf,
    /// The state folder of the host. Default: the configuration's.
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// The admin address of the host, `http://127.0.0.1:9482` or `unix:PATH`, in place of its control socket.
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "state_dir"])]
    admin: Option<String>,
}

impl Reach {
    /// The client for it. Sends nothing yet.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let client = match (&self.admin, &self.state_dir) {
            (Some(address), _) => Client::at(address),
            (None, Some(state_dir)) => Client::new(state_dir),
            (None, None) => Client::new(&super::run::state_dir(&self.config)?),
        };
        client.map_err(failure)
    }
}

/// Gets a path below `/v1/`.
pub(super) async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Failure> {
    client.get(path).await.map_err(failure)
}

fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Misused(_) => misused(error),
        _ => Failure::Failed(error.into()),
    }
}
