//! Scenarios: files that specify what a guest must do, run against simulated capabilities with a virtual clock.
//!
//! A run uses no network and no real time. The runner gets instances from a [`Stage`]; [`Guests`] is the stage with
//! real guests.
//!
//! ```text
//! paths -> files -> scenarios -> (world, instance, steps) -> outcomes -> summary
//! ```
#![forbid(unsafe_code)]

mod accept;
mod compare;
mod file;
mod find;
mod guests;
mod recorded;
mod report;
mod run;
mod simulated;
mod stage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

pub use accept::{Accepted, accept};
pub use file::{Asked, Ending, Scenario, Step, parse};
pub use find::{ScenarioFile, files};
use futures_util::stream::{self, StreamExt as _};
pub use guests::{Guests, Load, full_name};
pub use recorded::of_recording;
pub use report::{Failure, Observed, Outcome, Problem, Summary};
pub use stage::{Actor, Stage, Started, World};
use trueup_sources::yaml::FieldError;

/// Runs every scenario under `paths` whose name contains `text`, a few at a time, and passes each outcome to `report`
/// in the order of the files.
///
/// A file that cannot be read and a guest that cannot be loaded are errors of the summary; everything else runs.
pub async fn run_named(stage: Arc<dyn Stage>, paths: &[PathBuf], text: &str, report: impl FnMut(&Outcome)) -> Summary {
    let (mut files, errors) = find::read(paths);
    for file in &mut files {
        file.scenarios.retain(|scenario| scenario.name.contains(text));
    }
    run_files(stage, files, errors, report).await
}

/// Runs the scenarios of a text, which outcomes name as if it were a file.
///
/// # Errors
/// If it holds no scenarios.
pub async fn run_text(stage: Arc<dyn Stage>, name: &str, text: &str) -> Result<Summary, FieldError> {
    let file = ScenarioFile {
        path: name.into(),
        scenarios: parse(text)?,
    };
    Ok(run_files(stage, vec![file], Vec::new(), |_| ()).await)
}

async fn run_files(
    stage: Arc<dyn Stage>,
    files: Vec<ScenarioFile>,
    errors: Vec<String>,
    mut report: impl FnMut(&Outcome),
) -> Summary {
    let mut summary = Summary {
        errors,
        ..Summary::default()
    };
    let loaded = load(&*stage, &files, &mut summary.errors).await;
    let scenarios = files.into_iter().flat_map(|file| {
        let path = file.path.display().to_string();
        file.scenarios.into_iter().map(move |scenario| (path.clone(), scenario))
    });
    let scenarios = scenarios.filter(|(_, scenario)| loaded.contains(&scenario.guest));
    let runs = scenarios.map(|(file, scenario)| {
        let stage = stage.clone();
        tokio::spawn(async move { outcome(&*stage, file, &scenario).await })
    });
    // Each scenario computes and never waits, so more than one per processor gains nothing.
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let mut outcomes = stream::iter(runs).buffered(at_once);
    while let Some(outcome) = outcomes.next().await {
        match outcome {
            Ok(outcome) => {
                report(&outcome);
                summary.take(outcome);
            }
            Err(error) => {
                // A panic here is a defect of this program: report it, and run the rest.
                let error = format!("a scenario could not be run to its end: {error}");
                summary.errors.push(error);
            }
        }
    }
    summary
}

/// Loads the guests of all scenarios. Returns those that can run.
async fn load(stage: &dyn Stage, files: &[ScenarioFile], errors: &mut Vec<String>) -> Vec<String> {
    let places = files.iter().flat_map(|file| {
        let scenarios = file.scenarios.iter();
        scenarios.map(|scenario| (scenario.guest.as_str(), (file.path.display(), scenario.line)))
    });
    // In reverse, so that a guest keeps the place that names it first.
    let guests: BTreeMap<_, _> = places.rev().collect();
    let mut loaded = Vec::new();
    for (guest, (file, line)) in guests {
        match stage.load(guest).await {
            Ok(()) => loaded.push(guest.to_owned()),
            Err(error) => errors.push(format!("{file}:{line}: guest `{guest}` could not be loaded: {error}")),
        }
    }
    loaded
}

async fn outcome(stage: &dyn Stage, file: String, scenario: &Scenario) -> Outcome {
    let began = Instant::now();
    let mut failures = run::run(stage, scenario).await.into_iter();
    Outcome {
        file,
        name: scenario.name.clone(),
        line: scenario.line,
        guest: scenario.guest.clone(),
        failure: failures.next(),
        more_failures: failures.collect(),
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}
