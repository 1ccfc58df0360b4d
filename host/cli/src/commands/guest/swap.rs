//! `trueup guest swap`: makes another version of a guest the active one, while the host runs.

use trueup_runtime::control;
use trueup_work::gate::Mode;
use trueup_work::swap::Activated;

use super::host::{self, Host};
use crate::commands::one_of;
use crate::exit::Ending;
use crate::output::{self, Output};

/// Makes another version of a guest the active one, completely or not at all.
///
/// The host loads the candidate and checks it against its world and its grants. The candidate must accept its settings,
/// pass the self-test, replay the newest recorded calls of the active version, and take its state. If any of that
/// fails, the active version stays, and the command reports why. Running calls end on the version that they began with.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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

/// The modes of the gate.
const MODES: [(&str, &str, Mode); 4] = [
    (
        "identical",
        "Refuses the candidate unless it gives the recorded results and writes",
        Mode::Identical,
    ),
    (
        "strict",
        "Refuses the candidate unless it gives the recorded questions and results",
        Mode::Strict,
    ),
    ("report", "Reports differences", Mode::Report),
    ("off", "Replays nothing", Mode::Off),
];

pub(super) fn exec(args: &Args, output: Output) -> Ending {
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
    show(&activated, output)
}

/// Prints what became active.
pub(super) fn show(activated: &Activated, output: Output) -> Ending {
    output::show(activated, output, |activated| {
        vec![format!("{}: {activated}", activated.guest)]
    })
}
