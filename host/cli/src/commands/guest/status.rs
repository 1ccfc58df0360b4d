//! `trueup guest status`: which version of each guest decides, which inputs are set aside, what runs in shadow.

use trueup_work::swap::GuestStatus;

use super::host::Host;
use super::shadow::{compared, refused};
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
        let known: Vec<String> = all.iter().map(|status| status.guest.clone()).collect();
        all.retain(|status| status.guest == *guest);
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
    let rows = all.iter().map(|status| {
        let active = status.active.as_ref();
        [
            status.guest.clone(),
            or_dash(active.map(|active| active.revision)),
            or_dash(active.map(|active| format!("{}@{}", active.name, active.version))),
            or_dash(active.map(|active| output::time(active.at_ms))),
            or_dash(active.map(|active| active.by)),
            status.quarantined.len().to_string(),
            or_dash(status.shadow.as_ref().map(compared)),
        ]
    });
    let mut lines = table(head, rows);
    let refused = all.iter().filter_map(|status| {
        let why = refused(status.shadow.as_ref()?)?;
        Some(format!("{}: {why}", status.guest))
    });
    lines.extend(refused);
    let set_aside = all.iter().flat_map(|status| &status.quarantined);
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
