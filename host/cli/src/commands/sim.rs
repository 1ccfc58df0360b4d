//! `trueup sim`: simulated servers in a process of their own.

mod compute;
mod lbaas;

use std::net::SocketAddr;

use crate::exit::Ending;
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

/// Prints the server's address as the first line; scripts wait for it.
fn say_address(address: SocketAddr) -> anyhow::Result<()> {
    output::line(&format!("listening on http://{address}"))
}
