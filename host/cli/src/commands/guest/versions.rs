//! `trueup guest status`, `swap`, `rollback` and `history`: which version of a guest decides, and another one in its
//! place while the host runs.

use anyhow::anyhow;
use trueup_runtime::control;
use trueup_work::gate::Mode;
use trueup_work::status::Status as HostStatus;
use trueup_work::swap::{Activated, GuestStatus, Revision, Revisions};

use super::host::{self, Host, OfGuest};
use super::shadow;
use crate::commands::one_of;
use crate::exit::{Ending, misused};
use crate::output::{self, Column, Output, or_dash};

/// Shows which version of each guest decides, which inputs are set aside, and what runs in shadow. Asks the running
/// host.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// One guest, as in [guests.NAME]. Default: all.
    guest: Option<String>,
    #[command(flatten)]
    host: Host,
}

pub(super) fn status(args: &Status, output: Output) -> Ending {
    let mut all: Vec<GuestStatus> = args.host.get("guests")?;
    if let Some(guest) = &args.guest {
        let known: Vec<String> = all.iter().map(|status| status.guest.clone()).collect();
        all.retain(|status| status.guest == *guest);
        if all.is_empty() {
            let known = known.join(", ");
            return Err(misused(anyhow!("no guest `{guest}` runs there; there are: {known}")));
        }
    }
    output::show(&all, output, |all| lines(all))
}

fn lines(all: &[GuestStatus]) -> Vec<String> {
    let columns: [Column<'_, GuestStatus>; 7] = [
        ("GUEST", &|of| of.guest.clone()),
        ("REVISION", &|of| or_dash(of.active.as_ref().map(|it| it.revision))),
        ("VERSION", &|of| or_dash(of.active.as_ref().map(version))),
        ("SINCE", &|of| {
            or_dash(of.active.as_ref().map(|it| output::time(it.at_ms)))
        }),
        ("BY", &|of| or_dash(of.active.as_ref().map(|it| it.by))),
        ("QUARANTINED", &|of| of.quarantined.len().to_string()),
        ("SHADOW", &|of| or_dash(of.shadow.as_ref().map(shadow::compared))),
    ];
    let mut lines = output::columns(columns, all);
    let refused = all.iter().filter_map(|status| {
        let why = shadow::refused(status.shadow.as_ref()?)?;
        Some(format!("{}: {why}", status.guest))
    });
    lines.extend(refused);
    let set_aside = all.iter().flat_map(|status| &status.quarantined);
    let rows = set_aside.map(|entry| {
        let failures = entry.failures.to_string();
        let at = output::time(entry.at_ms);
        let recording = entry.journal.display().to_string();
        [entry.instance.clone(), failures, at, entry.error.clone(), recording]
    });
    let head = ["QUARANTINED", "FAILED", "SINCE", "WHY", "RECORDING"];
    lines.extend(output::table_below(head, rows.collect()));
    lines
}

/// Makes another version of a guest the active one, completely or not at all.
///
/// The host loads the candidate and checks it against its world and its grants. The candidate must accept its settings,
/// pass the self-test, replay the newest recorded calls of the active version, and take its state. If any of that
/// fails, the active version stays, and the command reports why. Running calls end on the version that they began with.
#[derive(Debug, clap::Args)]
pub(crate) struct Swap {
    /// The guest, as in [guests.NAME].
    guest: String,
    /// The candidate: a name such as `lbaas@2`, a file, or an image (`oci:...@sha256:...`).
    candidate: String,
    /// What its answers to recorded calls must match. Default: the configuration's gate.
    #[arg(long, value_parser = one_of(MODES))]
    gate: Option<Mode>,
    /// The same as `--gate strict`: compares every question, not only results and writes.
    #[arg(long, conflicts_with = "gate")]
    strict: bool,
    /// Starts without the state of the active version, for a guest that does not read it. Not for guests that store
    /// something or have timers (ipam, neg).
    #[arg(long)]
    afresh: bool,
    /// Only checks whether it could become active.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    host: Host,
}

const IDENTICAL: &str = "Refuses the candidate unless it gives the recorded results and writes";
const STRICT: &str = "Refuses the candidate unless it gives the recorded questions and results";

/// The modes of the gate.
const MODES: [(&str, &str, Mode); 4] = [
    ("identical", IDENTICAL, Mode::Identical),
    ("strict", STRICT, Mode::Strict),
    ("report", "Reports differences", Mode::Report),
    ("off", "Replays nothing", Mode::Off),
];

pub(super) fn swap(args: &Swap, output: Output) -> Ending {
    let reference = host::reference(&args.candidate)?;
    if let Some(name) = reference.strip_prefix("builtin:").filter(|name| !name.contains('@')) {
        output::talk(&format!("`{name}` is `{name}@1`: a name alone is version 1"));
    }
    let swap = control::Swap {
        reference,
        gate: args.strict.then_some(Mode::Strict).or(args.gate),
        dry_run: args.dry_run,
        afresh: args.afresh,
    };
    let activated: Activated = match args.dry_run {
        true => args.host.post(&host::path(&args.guest, "swap")?, &swap)?,
        false => args.host.change(&args.guest, "swap", &swap)?,
    };
    output::show(&activated, output, became)
}

/// What became active.
pub(super) fn became(activated: &Activated) -> Vec<String> {
    vec![format!("{}: {activated}", activated.guest)]
}

/// Goes back to the previous version, or to a revision.
///
/// That version was active once, so it is not checked against recorded calls again. It must still accept its settings
/// and take the state of the active version.
#[derive(Debug, clap::Args)]
pub(crate) struct Rollback {
    /// The guest, as in [guests.NAME].
    guest: String,
    /// The number of a revision; see `trueup guest history`. Default: the newest of an earlier version
    /// that no rollback left.
    #[arg(long)]
    to: Option<u64>,
    #[command(flatten)]
    host: Host,
}

pub(super) fn rollback(args: &Rollback, output: Output) -> Ending {
    let rollback = control::Rollback { to: args.to };
    output::show(&args.host.change(&args.guest, "rollback", &rollback)?, output, became)
}

pub(super) fn history(args: &OfGuest, output: Output) -> Ending {
    host::path(&args.guest, "history")?;
    let state_dir = args.host.state_dir()?;
    let revisions = Revisions::load(&state_dir, &args.guest).map_err(|error| misused(anyhow!(error)))?;
    if revisions.all().is_empty() {
        let guest = &args.guest;
        let folder = state_dir.display();
        let why = anyhow!("guest `{guest}` was never active with the state folder {folder}");
        return Err(misused(why));
    }
    let status: Option<HostStatus> = host::answer(&state_dir, "status");
    let moved = status.and_then(|status| status.host.state_dir_moved);
    moved.iter().for_each(output::warn);
    let columns: [Column<'_, Revision>; 7] = [
        ("REVISION", &|of| of.revision.to_string()),
        ("VERSION", &version),
        ("SINCE", &|of| output::time(of.at_ms)),
        ("BY", &|of| of.by.to_string()),
        ("USE", &|of| of.reference.clone()),
        ("DIGEST", &|of| output::short(&of.digest).to_owned()),
        ("NOTE", &|of| of.note.clone().unwrap_or_default()),
    ];
    output::show(revisions.all(), output, |all| output::columns(columns, all))
}

fn version(of: &Revision) -> String {
    format!("{}@{}", of.name, of.version)
}
