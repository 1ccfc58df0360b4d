//! `trueup sim`: simulated servers in a process of their own.

mod compute;
mod lbaas;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use trueup_base::{regular, text};
use trueup_sims::{Server, StartError};

use crate::exit::{Ending, Exit, Failure, misused};
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Lbaas(lbaas::Args),
    Compute(compute::Args),
}

pub(crate) fn exec(command: Command) -> Ending {
    match command {
        Command::Lbaas(args) => lbaas::exec(args),
        Command::Compute(args) => compute::exec(args),
    }
}

/// The settings of a server: the keys of its section of a configuration, at the top level of a TOML file. A relative
/// path of the state file is relative to that file.
fn settings<T: DeserializeOwned + Default>(
    file: Option<&Path>,
    state_file: impl FnOnce(&mut T) -> &mut Option<PathBuf>,
) -> Result<T, Failure> {
    let Some(file) = file else { return Ok(T::default()) };
    let invalid = |at: &str, why: &str| misused(anyhow::anyhow!("{}{at}: {why}", file.display()));
    let content = regular::read_text(file, regular::SMALL).map_err(|error| invalid("", &text::cause(&error)))?;
    let mut settings: T = toml::from_str(&content).map_err(|error| {
        let before = content.bytes().take(error.span().unwrap_or_default().start);
        let line = 1 + before.filter(|byte| *byte == b'\n').count();
        invalid(&format!(":{line}"), &text::line(error.message()))
    })?;
    if let (Some(state_file), Some(folder)) = (state_file(&mut settings), file.parent()) {
        *state_file = folder.join(&state_file);
    }
    Ok(settings)
}

/// Starts a server, says where it listens, and serves until the command is stopped. An address of another machine
/// counts as misuse.
fn serve(listen: SocketAddr, starting: impl Future<Output = Result<Server, StartError>>) -> Ending {
    super::block_on(async {
        let server = starting.await.map_err(|error| match listen.ip().is_loopback() {
            true => Failure::Failed(error.into()),
            false => misused(error),
        })?;
        output::line(&format!("listening on http://{}", server.local_addr()))?;
        super::listen_for_stop().await;
        server.stop().await;
        Ok(Exit::Done)
    })?
}
