//! `trueup guest lock`: pins the present digest of each guest of a configuration.

use trueup_base::text::counted;
use trueup_registry::{Change, ChangeKind, LOCK_FILE_NAME, NotLoaded, Pin};

use crate::commands::config::ConfigArg;
use crate::exit::{Ending, Exit, Failure, misused};
use crate::output::{self, Output};

/// Resolves each guest of a configuration, and pins it in `trueup.lock` beside the configuration.
///
/// Pulls guests of registries into the store of the state folder, with their signatures if the configuration requires
/// them. A run then needs no network. Prints what changed. If one guest has a problem, writes nothing. Guests that ship
/// with the host need no pin.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArg,
}

pub(super) fn exec(args: Args, output: Output) -> Ending {
    let config = crate::commands::run::read(&args.config.path())?;
    let loader = crate::commands::loader_of(&config)?;
    let changes = crate::commands::block_on(loader.lock(config.references()))?.map_err(all)?;
    if changes.is_empty() && output.is_text() {
        output::talk("nothing to pin: every guest ships with this host");
        return Ok(Exit::Done);
    }
    output::show(&changes, output, |changes| {
        let file = config.file.with_file_name(LOCK_FILE_NAME);
        let pinned = changes.iter().filter(|change| change.pin.is_some()).count() as u64;
        let pinned = format!("{}: {} pinned", file.display(), counted(pinned, "guest", "guests"));
        changes.iter().map(line).chain([pinned]).collect()
    })
}

/// Every problem, one a line.
fn all(errors: Vec<NotLoaded>) -> Failure {
    let is_misused = errors.iter().all(|error| matches!(error, NotLoaded::NoGuest(_)));
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let error = anyhow::anyhow!("{}", lines.join("\n"));
    if is_misused { misused(error) } else { error.into() }
}

fn line(change: &Change) -> String {
    let word = match change.change {
        ChangeKind::Added => "added",
        ChangeKind::Moved => "moved",
        ChangeKind::Unchanged => "unchanged",
        ChangeKind::Removed => "removed",
    };
    let digest = |pin: &Option<Pin>| pin.as_ref().map(|pin| pin.digest.clone());
    let digests = match (digest(&change.before), digest(&change.pin)) {
        // The same guest in another manifest: the registry's tag has moved all the same.
        (Some(before), Some(now)) if before == now => format!("{now}, in another manifest"),
        (Some(before), Some(now)) => format!("{before} -> {now}"),
        (before, now) => now.or(before).unwrap_or_default(),
    };
    format!("{word:<9} {}  {digests}", change.reference)
}
