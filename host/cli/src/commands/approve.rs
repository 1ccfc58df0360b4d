//! `trueup approve`: allows a running host to destroy what waits for an approval.

use trueup_runtime::control::{Approve, Approved};

use super::guest::host::Host;
use crate::exit::Ending;
use crate::output::{self, Output, printable};

/// Approves the destruction of what waits for an approval.
///
/// A source change that destroys more than half of what a guest holds, and more than 10 objects, waits. `trueup status`
/// reports it, and `trueup plan` lists the changes. Limits: `approve_above` and `approve_above_percent` in
/// [guests.NAME].
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The guest, such as `lbaas`. Default: every guest with a waiting change.
    guest: Option<String>,
    #[command(flatten)]
    host: Host,
}

pub(crate) fn exec(args: &Args, output: Output) -> Ending {
    let request = Approve {
        guest: args.guest.clone(),
    };
    let approved: Vec<Approved> = args.host.post("approve", &request)?;
    output::show(&approved, output, |approved| match approved.as_slice() {
        [] => vec!["nothing waits for an approval".to_owned()],
        approved => approved.iter().map(line).collect(),
    })
}

fn line(Approved { guest, waiting }: &Approved) -> String {
    let keys: Vec<_> = waiting.keys.iter().map(|key| printable(key)).collect();
    let (guest, keys) = (printable(guest), keys.join(", "));
    format!("{guest}: approved: {} go: {keys}", waiting.text("objects"))
}
