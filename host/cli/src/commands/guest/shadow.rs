//! `trueup guest shadow`: compares a candidate with the active version, call by call.

use trueup_runtime::control;
use trueup_work::shadow::Status;
use trueup_work::swap::Promotion;

use super::host::{self, Host, OfGuest};
use super::versions::became;
use crate::exit::Ending;
use crate::output::{self, Output, or_dash, table};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Starts to compare a candidate with the active version. It gets every call with the recorded answers, and decides
    /// nothing.
    Start(Start),
    /// Shows the state of the comparison.
    Status(OfGuest),
    /// Ends the comparison, and shows its result.
    Stop(OfGuest),
    /// Makes the candidate the active version, as `trueup guest swap` does.
    Promote(Promote),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    /// The guest, as in [guests.NAME].
    guest: String,
    /// The candidate: a name such as `lbaas@2`, a file, or an image (`oci:...@sha256:...`).
    candidate: String,
    /// Compares every question, not only results and writes. Default: if the configuration's gate is `strict`.
    #[arg(long)]
    strict: bool,
    /// Starts without the state of the active version, for a guest that does not read it. Not for guests that store
    /// something or have timers (ipam, neg).
    #[arg(long)]
    afresh: bool,
    #[command(flatten)]
    host: Host,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Promote {
    /// The guest, as in [guests.NAME].
    guest: String,
    /// Waits in the host until this many calls in a row were the same, such as `100-same`. Default: swaps now.
    #[arg(long, value_name = "N-same", value_parser = same)]
    after: Option<u64>,
    #[command(flatten)]
    host: Host,
}

fn same(text: &str) -> Result<u64, String> {
    let count = text.strip_suffix("-same").unwrap_or(text);
    let count = count.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "must be a whole number from 1 and `-same`, such as `100-same`".to_owned())
}

pub(super) fn exec(command: &Command, output: Output) -> Ending {
    let status: Status = match command {
        Command::Start(args) => {
            let start = control::StartShadow {
                reference: host::reference(&args.candidate)?,
                strict: args.strict,
                afresh: args.afresh,
            };
            args.host.change(&args.guest, "shadow", &start)?
        }
        Command::Status(args) => args.host.get(&host::path(&args.guest, "shadow")?)?,
        Command::Stop(args) => args.host.delete(&host::path(&args.guest, "shadow")?)?,
        Command::Promote(args) => return promote(args, output),
    };
    output::show(&status, output, lines)
}

fn promote(args: &Promote, output: Output) -> Ending {
    let promote = control::Promote { after: args.after };
    let promotion: Promotion = args.host.change(&args.guest, "shadow/promote", &promote)?;
    let guest = &args.guest;
    output::show(&promotion, output, |promotion| match promotion {
        Promotion::Done(activated) => became(activated),
        Promotion::Awaited { after, same_in_a_row } => vec![format!(
            "{guest}: becomes active when {after} calls in a row came out the same; {same_in_a_row} did so far"
        )],
    })
}

/// `its promotion was refused at 2026-11-25T18:57:37.000Z: ...`. Empty if it was not.
pub(super) fn refused(status: &Status) -> Option<String> {
    let refused = status.promotion_refused.as_ref()?;
    let at = output::time(refused.at_ms);
    let why = output::printable(&refused.why);
    Some(format!("its promotion was refused at {at}: {why}"))
}

/// The state of a comparison, in a few words.
pub(super) fn compared(status: &Status) -> String {
    let promoted = promoted(status.promoted_after);
    format!("{} of {} same{promoted}", status.same, status.compared)
}

/// `; promoted after 5 in a row`. Empty if no promotion waits.
pub(in crate::commands) fn promoted(after: Option<u64>) -> String {
    after.map_or_else(String::new, |after| format!("; promoted after {after} in a row"))
}

fn lines(status: &Status) -> Vec<String> {
    let guest = format!("{}@{} {}", status.candidate, status.version, status.digest);
    let since = output::time(status.since_ms);
    let promoted = promoted(status.promoted_after);
    let counts = [
        ("COMPARED", status.compared),
        ("SAME", status.same),
        ("DIFFERENT", status.different),
        ("UNRECORDED", status.unrecorded),
        ("SKIPPED", status.skipped),
        ("WAITING", status.waiting),
        ("SAME IN A ROW", status.same_in_a_row),
    ];
    let mut lines = vec![format!("candidate  {guest}, since {since}{promoted}")];
    let row = counts.map(|(_, count)| count.to_string());
    lines.extend(table(counts.map(|(head, _)| head), [row]));
    lines.extend(refused(status));
    // Also show the first difference when the list of the last ones no longer holds it.
    let first = status.first.iter().filter(|first| !status.last.contains(first));
    let differences = first.chain(&status.last).map(|difference| {
        [
            difference.key.clone(),
            difference.verdict.to_string(),
            or_dash(difference.n),
            difference.what.clone(),
            or_dash(difference.file.as_ref().map(|file| file.display())),
        ]
    });
    let head = ["INSTANCE", "VERDICT", "ENTRY", "WHAT", "RECORDING"];
    lines.extend(output::table_below(head, differences.collect()));
    lines
}
