//! `trueup test`: runs scenarios.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use trueup_base::replace::{Durable, replace_file};
use trueup_base::text::counted;
use trueup_scenario::{Outcome, Summary, accept, run_named};

use super::watch::{Picture, Watch};
use crate::exit::{Ending, Exit, misused};
use crate::output::{self, Output};

/// Runs scenarios: what guests must do, against simulated capabilities with a virtual clock.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Scenario files, or folders of them: YAML or JSON.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Runs the scenarios of a guest against another build of it.
    #[arg(long, value_name = "NAME=FILE", value_parser = guest_file)]
    guest: Vec<(String, PathBuf)>,
    /// Runs only scenarios whose name contains this text.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Also writes the outcomes to this file as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Writes what was seen into the files in place of what they expect, and then runs them again. Comments and order
    /// stay. What can't be written so is refused, with its line.
    #[arg(long)]
    accept: bool,
    /// Writes what the guests log to the log.
    #[arg(long)]
    pub(super) log: bool,
    #[command(flatten)]
    watch: Watch,
}

fn guest_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("must be NAME=FILE, such as lbaas=my-lbaas.wasm".to_owned()),
    }
}

/// A replaced guest that no scenario ran against: a misspelt name must not look like a success.
fn unused<'n>(mut names: impl Iterator<Item = &'n String>, summary: &Summary) -> Option<&'n String> {
    // A bare name always means version 1.
    let plain = |name: &str| name.strip_suffix("@1").unwrap_or(name).to_owned();
    let used: Vec<String> = summary.scenarios.iter().map(|outcome| plain(&outcome.guest)).collect();
    names.find(|name| !used.contains(&plain(name)))
}

pub(crate) fn exec(args: &Args, output: Output) -> Ending {
    if !args.watch.is_on() {
        // Each line as soon as its scenario has ended.
        return shown(args, output, |text| output::bytes(text.as_bytes()));
    }
    let mut last: Option<(u64, Picture)> = None;
    args.watch.show(output, || {
        let state = state(args);
        if let Some((_, picture)) = last.as_ref().filter(|(of, _)| *of == state) {
            return Ok(picture.clone());
        }
        let mut text = String::new();
        let exit = shown(args, output, |more| {
            text.push_str(more);
            Ok(())
        })?;
        // Its own changes are no reason to run again.
        let state = if args.accept { self::state(args) } else { state };
        let lasting = state.to_string();
        let picture = Picture { text, lasting, exit };
        last = Some((state, picture.clone()));
        Ok(picture)
    })
}

/// Changes with each file of scenarios and each guest's.
fn state(args: &Args) -> u64 {
    let mut hasher = DefaultHasher::new();
    let files = args.guest.iter().map(|(_, file)| file.clone());
    for file in files.chain(trueup_scenario::files(&args.paths)) {
        let metadata = std::fs::metadata(&file).ok();
        let changed = metadata.map(|metadata| (metadata.len(), metadata.modified().ok()));
        (file, changed).hash(&mut hasher);
    }
    hasher.finish()
}

/// Runs the scenarios, and gives the output part by part to `show`.
fn shown(args: &Args, output: Output, mut show: impl FnMut(&str) -> anyhow::Result<()>) -> Ending {
    if args.accept {
        accept_all(args)?;
    }
    let summary = run(args, |outcome| {
        if output.is_text() {
            // If the reader of stdout went away, the program ends here.
            drop(show(&output::lines(&outcome.to_string())));
        }
    })?;
    for error in &summary.errors {
        output::talk(&format!("error: {error}"));
    }
    if let Some(file) = &args.junit {
        std::fs::write(file, summary.to_junit()).with_context(|| format!("can't write {}", file.display()))?;
    }
    show(&output::text(&summary, output, |summary| vec![summary.to_string()])?)?;
    ended(args, &summary)
}

fn run(args: &Args, tell: impl FnMut(&Outcome)) -> anyhow::Result<Summary> {
    let replaced: BTreeMap<String, PathBuf> = args.guest.iter().cloned().collect();
    let guests = super::loader()?.for_scenarios(replaced);
    let guests = guests.logging(super::guest_log(args.log));
    super::block_on(run_named(Arc::new(guests), &args.paths, &args.filter, tell))
}

/// Writes what a run shows into the files.
fn accept_all(args: &Args) -> anyhow::Result<()> {
    let summary = run(args, |_| ())?;
    for of_file in summary.scenarios.chunk_by(|one, next| one.file == next.file) {
        let Some(Outcome { file, .. }) = of_file.first() else {
            continue;
        };
        let text = std::fs::read_to_string(file).with_context(|| format!("can't read {file}"))?;
        let accepted = accept(&text, &of_file.iter().collect::<Vec<_>>());
        for refused in &accepted.refused {
            output::talk(&format!("warning: {file}:{refused}"));
        }
        if accepted.values > 0 {
            replace(Path::new(file), &accepted.text).with_context(|| format!("can't write {file}"))?;
            let values = counted(accepted.values, "expectation", "expectations");
            output::talk(&format!("{file}: {values} written"));
        }
    }
    Ok(())
}

/// Replaces a file of the operator's: a crash leaves the old text or the new one. A link and the mode stay.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let file = std::fs::canonicalize(file)?;
    let mode = std::fs::metadata(&file)?.permissions();
    replace_file(&file, text.as_bytes(), Durable::Yes)?;
    std::fs::set_permissions(&file, mode)
}

/// How the command ends.
fn ended(args: &Args, summary: &Summary) -> Ending {
    if summary.errors.is_empty() && summary.scenarios.is_empty() {
        let why = format!("--filter {}: no scenario's name contains this text", args.filter);
        return Err(misused(anyhow!(why)));
    }
    // Earlier lines name guests that could not be loaded and files that could not be read.
    let names = args.guest.iter().map(|(name, _)| name);
    if let Some(name) = unused(names, summary).filter(|_| summary.errors.is_empty()) {
        let why = anyhow!("--guest {name}=...: no scenario here is for a guest `{name}`");
        return Err(misused(why));
    }
    Ok(match summary.exit_code() {
        0 => Exit::Done,
        1 => Exit::Failed,
        // Earlier lines name what could not run, one line each.
        _ => Exit::Unusable,
    })
}
