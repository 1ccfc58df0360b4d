//! `trueup test`: runs scenarios.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use trueup_work::scenario::{Guests, Summary, run_named};

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
    /// Writes what the guests log to the log.
    #[arg(long)]
    log: bool,
}

fn guest_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("must be NAME=FILE, such as lbaas=my-lbaas.wasm".to_owned()),
    }
}

/// A replaced guest that no scenario ran against: a misspelt name must not look like a success.
fn unused<'n>(names: &'n [String], summary: &Summary) -> Option<&'n str> {
    // A bare name always means version 1.
    let plain = |name: &str| name.strip_suffix("@1").unwrap_or(name).to_owned();
    let is_used = |name: &&String| {
        summary
            .scenarios
            .iter()
            .any(|outcome| plain(&outcome.guest) == plain(name))
    };
    names.iter().find(|name| !is_used(name)).map(String::as_str)
}

pub(crate) fn exec(args: Args, output: Output) -> Ending {
    let loader = super::loader()?;
    let names: Vec<String> = args.guest.iter().map(|(name, _)| name.clone()).collect();
    let replaced: BTreeMap<String, PathBuf> = args.guest.into_iter().collect();
    let guests = Guests::new(loader, replaced).logging(super::guest_log(args.log));
    let summary = super::block_on(run_named(Arc::new(guests), &args.paths, &args.filter, |outcome| {
        if output == Output::Text {
            // If the reader of stdout went away, `output::line` ends the program.
            drop(output::line(&outcome.to_string()));
        }
    }))?;
    for error in &summary.errors {
        output::talk(&format!("error: {error}"));
    }
    if let Some(file) = &args.junit {
        std::fs::write(file, summary.to_junit()).with_context(|| format!("can't write {}", file.display()))?;
    }
    match output {
        Output::Json | Output::Yaml => output::document(&summary, output)?,
        Output::Text => output::line(&summary.to_string())?,
    }
    if summary.errors.is_empty() && summary.scenarios.is_empty() {
        return Err(misused(anyhow::anyhow!(
            "--filter {}: no scenario's name contains this text",
            args.filter
        )));
    }
    // Earlier lines name guests that could not be loaded and files that could not be read.
    if let (true, Some(name)) = (summary.errors.is_empty(), unused(&names, &summary)) {
        return Err(misused(anyhow::anyhow!(
            "--guest {name}=...: no scenario here is for a guest `{name}`"
        )));
    }
    match summary.exit_code() {
        0 => Ok(Exit::Done),
        1 => Ok(Exit::Failed),
        // Earlier lines name what could not run, one line each.
        _ => Ok(Exit::Unusable),
    }
}
