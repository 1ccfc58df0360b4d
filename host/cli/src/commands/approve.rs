//! `trueup approve`: allows a running host to destroy what waits for an approval.

use trueup_runtime::control::{Approve, Approved};

use super::guest::host::Host;
use crate::exit::{Ending, Exit};
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
    let wish = Approve {
        guest: args.guest.clone(),
    };
    let approved: Vec<Approved> = args.host.post("approve", &wish)?;
    match output {
        Output::Json => output::json(&approved)?,
        Output::Text if approved.is_empty() => output::line("nothing waits for an approval")?,
        Output::Text => {
            for Approved { guest, waiting } in &approved {
                let (objects, of) = (waiting.objects, waiting.of);
                let keys: Vec<_> = waiting.keys.iter().map(|key| printable(key)).collect();
                let guest = printable(guest);
                output::line(&format!(
                    "{guest}: approved: {objects} of {of} objects go: {}",
                    keys.join(", ")
                ))?;
            }
        }
    }
    Ok(Exit::Done)
}
