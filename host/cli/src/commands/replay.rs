//! `trueup replay`: decides recordings again and compares.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use serde::Serialize;
use trueup_base::progress;
use trueup_capabilities::log::Log;
use trueup_engine::Engine;
use trueup_instance::{Program, replay};
use trueup_journal::{Outcome, Segment};
use trueup_registry::{Reference, Store};
use trueup_work::load::Loader;

use super::recordings::Recordings;
use crate::exit::{Ending, Exit, Failure, misused};
use crate::output::{self, Output};

/// Decides recordings again: gives the guest the recorded answers, and compares what it does.
///
/// The recorded guest must ask the same questions in the same order. Another one (`--guest`) must return the same and
/// make the same writes, in order for each object, as at the gate of a swap.
///
/// Exits 0 if all are identical (as far as recorded), 3 if one is not.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    recordings: Recordings,
    /// Another guest: a file, a folder of versions (`file:FOLDER`), or the name of a built-in one. Default: the
    /// recorded guest, found by its digest among those that ship and those in the recording's state folder, else by its
    /// name and version.
    #[arg(long)]
    guest: Option<String>,
    /// With `--guest`: compares every question in its place, not only results and writes.
    #[arg(long)]
    strict: bool,
    /// With `--guest`: starts without the recorded state, for a guest that does not read it.
    #[arg(long, requires = "guest")]
    afresh: bool,
    /// Writes what the guest logs to the log.
    #[arg(long)]
    pub(super) log: bool,
}

#[derive(Serialize)]
struct Replayed {
    file: String,
    guest: String,
    recorded_digest: String,
    replayed_digest: String,
    torn: Option<String>,
    #[serde(flatten)]
    outcome: Outcome,
}

pub(crate) fn exec(args: Args, output: Output) -> Ending {
    let loader = super::loader()?;
    let log = super::guest_log(args.log);
    super::block_on(replay_all(&args, &loader, &log, output))?
}

async fn replay_all(args: &Args, loader: &Loader, log: &Arc<dyn Log>, output: Output) -> Ending {
    let mut all = Vec::new();
    let mut unreadable = 0;
    let mut programs = Programs::new(loader, args.guest.as_deref());
    let files = args.recordings.files()?;
    for file in &files {
        let segment = match Segment::read(file) {
            Ok(segment) => segment,
            Err(error) if files.len() == 1 => return Err(misused(error)),
            Err(error) => {
                // Go on: the other recordings are still worth a replay.
                output::talk(&format!("error: {:#}", anyhow::Error::from(error)));
                unreadable += 1;
                continue;
            }
        };
        let program = programs.of(file, &segment)?;
        let replayed = replay_one(args, &loader.engine, &program, file, segment, log).await;
        let replayed = replayed.map_err(|error| misused(anyhow!("{}: {error}", file.display())))?;
        if output.is_text() {
            show(&replayed)?;
        }
        all.push(replayed);
    }
    if !output.is_text() {
        output::document(&all, output)?;
    }
    if unreadable > 0 {
        return Err(misused(anyhow!(
            "{unreadable} of {} recordings can't be read, see above",
            files.len()
        )));
    }
    Ok(if all.iter().all(|replayed| replayed.outcome.is_identical()) {
        Exit::Done
    } else {
        Exit::Differs
    })
}

async fn replay_one(
    args: &Args,
    engine: &Engine,
    program: &Arc<Program>,
    file: &Path,
    mut segment: Segment,
    log: &Arc<dyn Log>,
) -> Result<Replayed, replay::ReplayError> {
    let _doing = progress::doing(|| format!("replaying {}", file.display()));
    if args.afresh {
        segment.header.snapshot = None;
    }
    let recorded_digest = segment.header.digest.clone();
    let torn = segment.torn.as_ref().map(ToString::to_string);
    let options = replay::Options {
        compare: match args.guest.is_some() && !args.strict {
            true => replay::Compare::Decisions,
            false => replay::Compare::Everything,
        },
        ..replay::Options::default()
    };
    Ok(Replayed {
        file: file.display().to_string(),
        guest: format!("{}@{}", program.guest.name, program.guest.version),
        recorded_digest,
        replayed_digest: program.guest.digest.to_string(),
        torn,
        outcome: replay::replay_with(engine, program, segment, Arc::clone(log), options).await?,
    })
}

/// The guests that recordings are replayed with. One program serves all recordings of a guest.
pub(super) struct Programs<'l> {
    loader: &'l Loader,
    wanted: Option<&'l str>,
    loaded: BTreeMap<Reference, Arc<Program>>,
}

impl<'l> Programs<'l> {
    /// `wanted`: a guest as [`Reference::parse`] takes it. `None`: the guest that made the recording.
    pub(super) fn new(loader: &'l Loader, wanted: Option<&'l str>) -> Self {
        Self {
            loader,
            wanted,
            loaded: BTreeMap::new(),
        }
    }

    /// The guest for the recording in `file`.
    pub(super) fn of(&mut self, file: &Path, segment: &Segment) -> Result<Arc<Program>, Failure> {
        let reference = match self.wanted {
            Some(wanted) => Reference::parse(wanted, Path::new("")).map_err(misused)?,
            None => recorded(file, segment),
        };
        if let Some(program) = self.loaded.get(&reference) {
            return Ok(Arc::clone(program));
        }
        let header = &segment.header;
        let program = self.loader.program(&reference).map_err(|error| match self.wanted {
            Some(_) => misused(error),
            None => misused(anyhow!(
                "{}: was recorded by guest `{}@{}` ({}): {error}; give it with --guest FILE",
                segment.name,
                header.guest,
                header.version,
                header.digest
            )),
        })?;
        self.loaded.insert(reference, Arc::clone(&program));
        Ok(program)
    }
}

/// The guest that made a recording: one that ships, or whose bytes are in the recording's state folder, by its digest;
/// else the one of its name and version.
fn recorded(file: &Path, segment: &Segment) -> Reference {
    let header = &segment.header;
    let ships = trueup_guests_builtin::GUESTS
        .iter()
        .find(|guest| guest.digest == header.digest);
    // STATE/journals/GUEST/KEY/N.jsonl
    let state_dir = file.ancestors().nth(4);
    let stored = state_dir.and_then(|state_dir| Store::at(state_dir).path(&header.digest).ok());
    match (ships, stored.filter(|stored| stored.is_file())) {
        (Some(guest), _) => Reference::Builtin {
            name: guest.name.to_owned(),
            version: guest.version.to_owned(),
        },
        (None, Some(stored)) => Reference::File(stored),
        (None, None) => Reference::Builtin {
            name: header.guest.clone(),
            version: header.version.clone(),
        },
    }
}

fn show(replayed: &Replayed) -> anyhow::Result<()> {
    if let Some(torn) = &replayed.torn {
        output::talk(&format!("warning: {torn}"));
    }
    let line = format!("{}: {}", replayed.file, replayed.outcome);
    output::bytes(output::changes(&[line]).as_bytes())?;
    if replayed.recorded_digest != replayed.replayed_digest {
        output::talk(&format!(
            "note: {} was recorded by another guest ({}) than `{}` ({})",
            replayed.file, replayed.recorded_digest, replayed.guest, replayed.replayed_digest
        ));
    }
    Ok(())
}
