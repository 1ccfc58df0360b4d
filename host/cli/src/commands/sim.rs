//! `trueup sim`: simulated servers in a process of their own.

mod compute;
mod lbaas;

use trueup_runtime::sim::Server;
use trueup_work::setup::SetupError;

use crate::exit::{Ending, Exit};
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

/// Starts a server, says where it listens, and serves until the command is stopped.
fn serve(starting: impl Future<Output = Result<Server, SetupError>>) -> Ending {
    super::block_on(async {
        let server = starting.await?;
        output::line(&format!("listening on http://{}", server.local_addr()))?;
        super::stopped().await;
        server.stop().await;
        Ok(Exit::Done)
    })?
}
