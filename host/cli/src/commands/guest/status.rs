//! `trueup guest status`: which version of each guest decides, which inputs are set aside, what runs in shadow.

use trueup_work::swap::GuestStatus;

use super::host::Host;
use super::shadow::compared;
use crate::exit::{Ending, misused};
use crate::output::{self, Output, or_dash, table};

/// Shows which version of each guest decides, which inputs are set aside, and what runs in shadow. Asks the running
/// host.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One guest, as in [guests.NAME]. Default: all.
    guest: Option<String>,
    #[command(flatten)]
    host: Host,
}

pub(super) fn exec(args: &Args, output: Output) -> Ending {
    let mut all: Vec<GuestStatus> = args.host.get("guests")?;
    if let Some(guest) = &args.guest {
        let known: Vec<String> = all.iter().map(|standing| standing.guest.clone()).collect();
        all.retain(|standing| standing.guest == *guest);
        if all.is_empty() {
            return Err(misused(anyhow::anyhow!(
                "no guest `{guest}` runs there; there are: {}",
                known.join(", ")
            )));
        }
    }
    output::show(&all, output, |all| lines(all))
}

fn lines(all: &[GuestStatus]) -> Vec<String> {
    let head = ["GUEST", "REVISION", "VERSION", "SINCE", "BY", "QUARANTINED", "SHADOW"];
    let rows = all.iter().map(|standing| {
        let active = standing.active.as_ref();
        [
            standing.guest.clone(),
            or_dash(active.map(|active| active.revision)),
            or_dash(active.map(|active| format!("{}@{}", active.name, active.version))),
            or_dash(active.map(|active| output::time(active.at_ms))),
            or_dash(active.map(|active| active.by)),
            standing.quarantined.len().to_string(),
            or_dash(standing.shadow.as_ref().map(compared)),
        ]
    });
    let mut lines = table(head, rows);
    let set_aside = all.iter().flat_map(|standing| &standing.quarantined);
    let rows = set_aside.map(|entry| {
        [
            entry.instance.clone(),
            entry.failures.to_string(),
            output::time(entry.at_ms),
            entry.error.clone(),
            entry.journal.display().to_string(),
        ]
    });
    let head = ["QUARANTINED", "FAILED", "SINCE", "WHY", "RECORDING"];
    lines.extend(output::table_below(head, rows.collect()));
    lines
}
