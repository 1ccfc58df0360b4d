//! `trueup replay`: decides recordings again and compares.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::to_raw_value;
use trueup_base::progress;
use trueup_base::text::counted;
use trueup_instance::replay::{self, ReplayError};
use trueup_instance::{Program, StartError};
use trueup_journal::{Ending as Recorded, Event, Outcome, Segment};
use trueup_registry::{Reference, Store, StoreError};
use trueup_work::load::Loader;
use trueup_work::needs::Named;
use trueup_worlds::KINDS;

use super::flags::{self, Recordings, chosen};
use crate::exit::{Ending, Exit, Failure, misused};
use crate::output::{self, Output};

/// Decides recordings again: gives the guest the recorded answers, and compares what it does.
///
/// The recorded guest must ask the same questions in the same order. Another one (`--guest`) must return the same and
/// make the same writes, in order for each object, as at the gate of a swap. Where it refuses the recorded settings, it
/// decides with those of the configuration that `TRUEUP_CONFIG` names, or that is in the current folder.
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
    /// Another guest refused the recorded settings, and decided with its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    own_settings: bool,
    /// Only the text has it: the outcome of another guest may differ.
    #[serde(skip)]
    ended: Option<String>,
    #[serde(flatten)]
    outcome: Outcome,
}

pub(crate) fn exec(args: Args, output: Output) -> Ending {
    let loader = super::loader()?;
    super::block_on(replay_all(&args, &loader, output))?
}

async fn replay_all(args: &Args, loader: &Loader, output: Output) -> Ending {
    let mut all = Vec::new();
    let (mut failed, mut of_another_world) = (0_usize, Vec::new());
    let mut programs = Programs::new(loader, args.guest.as_deref())?;
    let files = args.recordings.files()?;
    for file in &files {
        match replay_file(args, &mut programs, file).await {
            Ok(Ok(replayed)) => {
                if output.is_text() {
                    show(&replayed)?;
                }
                all.push(replayed);
            }
            Ok(Err(why)) => of_another_world.push(why),
            Err(error) if files.len() == 1 => return Err(misused(error)),
            Err(error) => {
                // Go on: the other recordings are still worth a replay.
                output::talk(&format!("error: {error:#}"));
                failed += 1;
            }
        }
    }
    let left_out = of_another_world.len();
    if let Some(why) = of_another_world.first().filter(|_| left_out == files.len()) {
        return Err(misused(anyhow!("{why}: there is nothing to replay")));
    }
    if output.is_text() {
        notes(&all);
    } else {
        output::document(&all, output)?;
    }
    let count = files.len();
    if left_out > 0 {
        let are = "recordings are of another world than the guest, and left out";
        output::talk(&format!("note: {left_out} of {count} {are}"));
    }
    if failed > 0 {
        let why = anyhow!("{failed} of {count} recordings can't be decided, see above");
        return Err(misused(why));
    }
    let is_identical = all.iter().all(|replayed| replayed.outcome.is_identical());
    Ok(if is_identical { Exit::Done } else { Exit::Differs })
}

/// `Err`: it is of another world than the guest.
async fn replay_file(
    args: &Args,
    programs: &mut Programs<'_>,
    file: &Path,
) -> anyhow::Result<Result<Replayed, String>> {
    let _doing = progress::doing(|| format!("replaying {}", file.display()));
    let segment = Segment::read(file)?;
    let program = programs.of(file, &segment)?;
    let guest = format!("{}@{}", program.guest.name, program.guest.version);
    let world = program.world.name;
    let of = &segment.header.world;
    let shown = file.display();
    if of != world {
        let why = format!("{shown} was recorded by a guest of the world {of}, and `{guest}` is of {world}");
        return Ok(Err(why));
    }
    // How the last call ended, if it gave no result.
    let ended = match segment.entries.last().map(|last| &last.event) {
        Some(Event::Ending(Recorded::Trap(text))) => Some(format!("its last call trapped: {text}")),
        _ => None,
    };
    let recorded_digest = segment.header.digest.clone();
    let torn = segment.torn.as_ref().map(ToString::to_string);
    let (outcome, own_settings) = decide(args, programs.loader, &program, (file, segment)).await?;
    Ok(Ok(Replayed {
        file: shown.to_string(),
        guest,
        recorded_digest,
        replayed_digest: program.guest.digest.to_string(),
        torn,
        own_settings,
        ended,
        outcome,
    }))
}

/// The outcome of a recording, and whether the guest had its own settings. As at the gate, one that refuses the
/// recorded settings gets its own: they may change together with the version.
async fn decide(
    args: &Args,
    loader: &Loader,
    program: &Arc<Program>,
    (file, segment): (&Path, Segment),
) -> anyhow::Result<(Outcome, bool)> {
    let options = replay::Options {
        compare: match args.guest.is_some() && !args.strict {
            true => replay::Compare::Decisions,
            false => replay::Compare::Everything,
        },
        log: Some(super::guest_log(args.log)),
        ..replay::Options::default()
    };
    let replayed = async |mut segment: Segment| {
        if args.afresh {
            segment.header.snapshot = None;
        }
        replay::replay(&loader.engine, program, segment, options.clone()).await
    };
    let failed = |error| match error {
        ReplayError::Damaged(error) => error.into(),
        error => anyhow!("{}: {error}", file.display()),
    };
    match replayed(segment).await {
        Err(error @ ReplayError::Start(StartError::Settings { .. })) if args.guest.is_some() => {
            let Some(own) = own_settings(file, program) else {
                let error = failed(error);
                let variable = trueup_config::CONFIG_ENV;
                let names = format!("{variable}=CONFIG names the configuration with its own");
                return Err(anyhow!("{error}; {names}"));
            };
            let mut segment = Segment::read(file)?;
            segment.header.settings = to_raw_value(&own)?;
            Ok((replayed(segment).await.map_err(failed)?, true))
        }
        outcome => Ok((outcome.map_err(failed)?, false)),
    }
}

/// The settings that the guest of a recording has in the default configuration. `None` if that can't be used, or has no
/// such guest.
fn own_settings(recording: &Path, program: &Program) -> Option<Value> {
    let config = flags::read(&chosen(None)).ok()?;
    let guests = KINDS.iter().flat_map(|kind| kind.needs(&config).guests);
    let is_of_world = |(_, worlds, _): &Named| worlds.iter().any(|world| world.name == program.world.name);
    let mut guests: Vec<Named> = guests.filter(is_of_world).collect();
    if guests.len() > 1 {
        // STATE/journals/GUEST/KEY/N.jsonl
        let name = recording.ancestors().nth(2)?.file_name()?;
        guests.retain(|(guest, ..)| *guest == name);
    }
    guests.pop().map(|(.., guest)| guest.settings)
}

/// The guests that recordings are replayed with. One program serves all recordings of a guest.
pub(super) struct Programs<'l> {
    loader: &'l Loader,
    wanted: Option<Arc<Program>>,
    loaded: BTreeMap<Reference, Arc<Program>>,
}

impl<'l> Programs<'l> {
    /// `wanted`: a guest as [`Reference::parse`] takes it. `None`: the guest that made the recording.
    ///
    /// # Errors
    /// If `wanted` can't be loaded.
    pub(super) fn new(loader: &'l Loader, wanted: Option<&str>) -> Result<Self, Failure> {
        let load = |wanted| {
            let reference = Reference::parse(wanted, Path::new("")).map_err(misused)?;
            loader.program(&reference).map_err(misused)
        };
        Ok(Self {
            loader,
            wanted: wanted.map(load).transpose()?,
            loaded: BTreeMap::new(),
        })
    }

    /// The guest for the recording in `file`.
    pub(super) fn of(&mut self, file: &Path, segment: &Segment) -> anyhow::Result<Arc<Program>> {
        if let Some(wanted) = &self.wanted {
            return Ok(Arc::clone(wanted));
        }
        let reference = recorded(file, segment)?;
        if let Some(program) = self.loaded.get(&reference) {
            return Ok(Arc::clone(program));
        }
        let program = self.loader.program(&reference).map_err(|error| {
            let name = &segment.name;
            let header = &segment.header;
            let guest = format!("`{}@{}` ({})", header.guest, header.version, header.digest);
            anyhow!("{name}: was recorded by guest {guest}: {error}; give it with --guest FILE")
        })?;
        self.loaded.insert(reference, Arc::clone(&program));
        Ok(program)
    }
}

/// The guest that made a recording: one that ships, or whose bytes are in the recording's state folder, by its digest;
/// else the one of its name and version.
///
/// # Errors
/// If the stored bytes are damaged, or can't be read.
fn recorded(file: &Path, segment: &Segment) -> Result<Reference, StoreError> {
    let header = &segment.header;
    let mut all = trueup_guests_builtin::GUESTS.iter();
    let ships = all.find(|guest| guest.digest == header.digest);
    // STATE/journals/GUEST/KEY/N.jsonl
    let state_dir = file.ancestors().nth(4);
    if let (None, Some(store)) = (ships, state_dir.map(Store::at)) {
        match store.get(&header.digest) {
            Ok(Some(_)) => return Ok(Reference::File(store.path(&header.digest)?)),
            Ok(None) | Err(StoreError::NotADigest(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let (name, version) = ships.map_or((&*header.guest, &*header.version), |guest| (guest.name, guest.version));
    Ok(Reference::Builtin {
        name: name.to_owned(),
        version: version.to_owned(),
    })
}

fn show(replayed: &Replayed) -> anyhow::Result<()> {
    replayed.torn.iter().for_each(output::warn);
    let ended = replayed.ended.iter().filter(|_| replayed.outcome.is_identical());
    let ended: String = ended.map(|ended| format!("; {ended}")).collect();
    let line = format!("{}: {}{ended}", replayed.file, replayed.outcome);
    output::bytes(output::changes(&[line]).as_bytes())
}

/// A line for each guest that recorded what another one decided again, and one if it did so with other settings.
fn notes(all: &[Replayed]) {
    let of_own: Vec<&Replayed> = all.iter().filter(|it| it.own_settings).collect();
    if let Some(first) = of_own.first() {
        let settings = counted(of_own.len(), "recording", "recordings");
        let refuses = format!("`{}` refuses the settings of {settings}", first.guest);
        output::talk(&format!("note: {refuses}, and decided with its own"));
    }
    let mut recorded: BTreeMap<&str, Vec<&Replayed>> = BTreeMap::new();
    for replayed in all.iter().filter(|it| it.recorded_digest != it.replayed_digest) {
        recorded.entry(&replayed.recorded_digest).or_default().push(replayed);
    }
    for (digest, of_guest) in recorded {
        let [first, others @ ..] = &of_guest[..] else { continue };
        let others = match others.len() {
            0 => " was".to_owned(),
            others => format!(" and {} were", counted(others, "other", "others")),
        };
        let than = format!("than `{}` ({})", first.guest, first.replayed_digest);
        let recorded = format!("{}{others} recorded by another guest ({digest})", first.file);
        output::talk(&format!("note: {recorded} {than}"));
    }
}
