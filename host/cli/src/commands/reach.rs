//! Which running host `status` and `top` ask: by its configuration, its state folder, or its admin address.

use trueup_runtime::control::Client;

use super::guest::host::Host;
use crate::exit::Failure;

/// The help of `--config`.
const ASKED: &str = "The configuration of the host: a TOML file, or a folder with `trueup.toml`. The command asks its \
                     control socket. Default: `TRUEUP_CONFIG`, else the current folder";

/// The host to ask.
#[derive(Debug, clap::Args)]
#[command(mut_arg("config", |arg| arg.help(ASKED)))]
pub(super) struct Reach {
    #[command(flatten)]
    host: Host,
    /// The admin address of the host, `http://127.0.0.1:9482` or `unix:PATH`, in place of its control socket.
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "state_dir"])]
    admin: Option<String>,
}

impl Reach {
    /// The client for it. Sends nothing yet.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Ok(match &self.admin {
            Some(address) => Client::at(address)?,
            None => Client::new(&self.host.state_dir()?)?,
        })
    }
}
