//! `trueup journal to-scenario`: a recording becomes a scenario that passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use trueup_capabilities::log::NoLog;
use trueup_instance::replay::{Options, ReplayError, replay};
use trueup_journal::Segment;
use trueup_scenario::{of_recording, run_text};

use crate::commands::flags::Recordings;
use crate::commands::replay::Programs;
use crate::commands::{block_on, loader};
use crate::exit::{Ending, Exit, misused};
use crate::output::{self, Output};

/// Writes recordings as scenarios for `trueup test`, one for each, to stdout.
///
/// The guest gets the recorded answers, as faults, and must give the recorded results, or end as recorded, and ask the
/// same. The command runs each scenario before it writes it. Of several recordings, those that hold no call that ended
/// are left out.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    recordings: Recordings,
    /// The file of the recorded guest. Default: the guest is found by its digest, as `trueup replay` finds it.
    #[arg(long, value_name = "FILE")]
    guest: Option<String>,
}

pub(super) fn exec(args: Args, output: Output) -> Ending {
    let files = args.recordings.files()?;
    let loader = loader()?;
    let mut programs = Programs::new(&loader, args.guest.as_deref())?;
    let mut guests = loader.for_scenarios(BTreeMap::default()).logging(Arc::new(NoLog));
    let mut scenarios = Vec::new();
    for file in &files {
        let segment = Segment::read(file).map_err(misused)?;
        let name = file.display().to_string();
        if let Some(torn) = &segment.torn {
            output::talk(&format!("warning: {torn}"));
        }
        let recorded = format!("{}@{}", segment.header.guest, segment.header.version);
        let program = programs.of(file, &segment).map_err(misused)?;
        let replayed = block_on(replay(&loader.engine, &program, segment.clone(), Options::default()))?;
        guests = guests.with(&recorded, program);
        let scenario = match replayed {
            Err(ReplayError::Damaged(damage)) => Err(damage.to_string()),
            _ => of_recording(&name, &segment).map_err(|why| why.to_string()),
        };
        match scenario {
            Ok(scenario) => scenarios.push(scenario),
            Err(why) if files.len() == 1 => return Err(misused(anyhow!("{name} can't become a scenario: {why}"))),
            Err(why) => output::talk(&format!("note: {name} is left out: {why}")),
        }
    }
    let text = match output {
        Output::Json => output::rendered(&scenarios, output)?,
        // Not by way of JSON: the keys keep the order in which people read them.
        Output::Text | Output::Wide | Output::Yaml => serde_saphyr::to_string(&scenarios).context("writing YAML")?,
    };
    let summary = block_on(run_text(Arc::new(guests), "the scenario", &text))?.context("reading what was written")?;
    if let Some(why) = summary.first_failure().or_else(|| summary.errors.first().cloned()) {
        return Err(anyhow!("no scenario is written, since it would not pass: {why}").into());
    }
    output::bytes(text.as_bytes())?;
    Ok(Exit::Done)
}
