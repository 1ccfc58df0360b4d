//! `trueup guest rollback`: goes back to an earlier version of a guest, while the host runs.

use trueup_runtime::control;
use trueup_work::swap::Activated;

use super::host::Host;
use crate::exit::Ending;
use crate::output::Output;

/// Goes back to the previous version, or to a revision.
///
/// That version was active once, so it is not checked against recorded calls again. It must still accept its settings
/// and take the state of the active version.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The guest, as in [guests.NAME].
    guest: String,
    /// The number of a revision; see `trueup guest history`. Default: the newest of an earlier version
    /// that no rollback left.
    #[arg(long)]
    to: Option<u64>,
    #[command(flatten)]
    host: Host,
}

pub(super) fn exec(args: &Args, output: Output) -> Ending {
    let rollback = control::Rollback { to: args.to };
    let activated: Activated = args.host.change(&args.guest, "rollback", &rollback)?;
    super::swap::show(&activated, output)
}
