//! `trueup neg`: lets an operator manage NEGs while the host runs.

use trueup_runtime::control::ErrorState;

use super::guest::host::Host;
use crate::exit::Ending;
use crate::output::{self, Output, printable};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    ErrorState(Args),
}

/// Sets whether a key is in its error state.
///
/// In the error state, a migration between stacks does not go on while many attachments are pending. The state persists
/// over restarts of the host, until you change it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The key: namespace, Service and port, such as `shop/web/80`.
    key: String,
    /// Whether the key is in its error state from now on.
    #[arg(value_parser = ["on", "off"])]
    state: String,
    #[command(flatten)]
    host: Host,
}

pub(crate) fn exec(command: &Command, output: Output) -> Ending {
    match command {
        Command::ErrorState(args) => error_state(args, output),
    }
}

fn error_state(args: &Args, output: Output) -> Ending {
    let request = ErrorState {
        key: args.key.clone(),
        on: args.state == "on",
    };
    let set: ErrorState = args.host.post("negs/error-state", &request)?;
    output::show(&set, output, |set| {
        let state = if set.on { "on" } else { "off" };
        vec![format!("{:<24} error state {state}", printable(&set.key))]
    })
}
