//! `trueup guest history`: which versions of a guest were active.

use trueup_work::swap::{Revision, Revisions};

use super::host::{self, Host};
use crate::exit::{Ending, misused};
use crate::output::{self, Output, table};

/// Shows which versions of a guest were active, the newest last. Works without a running host.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The guest, as in [guests.NAME].
    guest: String,
    #[command(flatten)]
    host: Host,
}

pub(super) fn exec(args: &Args, output: Output) -> Ending {
    host::path(&args.guest, "history")?;
    let state_dir = args.host.state_dir()?;
    let revisions = Revisions::load(&state_dir, &args.guest).map_err(|error| misused(anyhow::Error::msg(error)))?;
    if revisions.all().is_empty() {
        return Err(misused(anyhow::anyhow!(
            "guest `{}` was never active with the state folder {}",
            args.guest,
            state_dir.display()
        )));
    }
    if let Some(moved) = host::status(&state_dir).and_then(|status| status.host.state_dir_moved) {
        output::talk(&format!("warning: {moved}"));
    }
    output::show(revisions.all(), output, |all| {
        let head = ["REVISION", "VERSION", "SINCE", "BY", "USE", "DIGEST", "NOTE"];
        table(head, all.iter().map(row))
    })
}

fn row(revision: &Revision) -> [String; 7] {
    [
        revision.revision.to_string(),
        format!("{}@{}", revision.name, revision.version),
        output::time(revision.at_ms),
        revision.by.to_string(),
        revision.reference.clone(),
        output::short(&revision.digest).to_owned(),
        revision.note.clone().unwrap_or_default(),
    ]
}
