//! `trueup run`: reconciles what the configuration names, once or until it is stopped.

use std::convert::Infallible;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;
use trueup_base::text::counted;
use trueup_config::{Config, ConfigError, Source};
use trueup_runtime::run::{self, Ended, Part, Reload};
use trueup_runtime::state_lock::StateLock;
use trueup_work::event::{Event, Message};
use trueup_worlds::sections;

use super::flags::ConfigArg;
use crate::exit::{Ending, Exit, misused};
use crate::output::{self, Output};
use crate::telemetry::{self, Traces, Verbosity};

/// Reconciles everything, and keeps it in sync until it is stopped.
///
/// Reads manifests or watches a cluster, and calls the guest for each Service of type LoadBalancer; fills network
/// endpoint groups; numbers this node and renders the Services on it; gives pods their addresses. It runs the parts
/// that the configuration names, all in one process. Records every question that a guest asks under `state_dir`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Ends when every key has succeeded, or failed 5 times; exits 0 if none failed and everything could be read. For
    /// pod addresses: reads the store and works off what was left while no host ran; serves no pod.
    #[arg(long)]
    once: bool,
    /// Destroys without waiting for an approval, even more than half of what a guest holds.
    #[arg(long, requires = "once")]
    approve: bool,
    /// Keeps no recordings beyond what a restart needs.
    #[arg(long)]
    no_record: bool,
}

pub(crate) fn exec(args: Args, output: Output, verbosity: Verbosity) -> Ending {
    let from = args.config.path();
    let load = move || -> Result<Config, ConfigError> {
        let mut config = Config::load(&from, &sections())?;
        config.journal.record &= !args.no_record;
        Ok(config)
    };
    let mut config = load().map_err(misused)?;
    if args.approve {
        config.approve();
    }
    let traces = telemetry::start(&config.telemetry, verbosity).map_err(|error| misused(anyhow!(error)))?;
    let _lock = StateLock::take(&config.state_dir)?;
    let registry = super::registry();
    let place = config.source().map_or("", Source::place);
    let mut events = Vec::new();
    let tell = |event: Event| match output {
        Output::Text | Output::Wide => say(&event),
        // A run that ends prints one document; an endless one prints a line for each event.
        Output::Json | Output::Yaml if args.once => events.push(event),
        Output::Json | Output::Yaml => output::value_if_read(&event, output),
    };
    let ended = super::block_on(async {
        let end_export = traces.map(Traces::spawn);
        let stop = asked_to_stop(super::listen_for_stop());
        let ended = if args.once {
            run::once(&config, &registry, stop, tell).await
        } else {
            let (ask, asked) = mpsc::channel(1);
            let watching = run::watch(config, &registry, Some(Reload::new(asked, load)), stop, tell);
            tokio::select! {
                ended = watching => ended,
                never = ask_at_hangup(ask) => match never {},
            }
        };
        if let Some(end_export) = end_export {
            end_export().await;
        }
        ended
    })??;
    match output {
        Output::Json | Output::Yaml if args.once => {
            output::document(&document(&events, &ended).context("writing the document")?, output)?;
        }
        Output::Json | Output::Yaml => {
            let summaries = ended.parts.iter().map(|part| &part.summary);
            summaries.for_each(|summary| output::value_if_read(&summary.json, output));
        }
        Output::Text | Output::Wide => conclude(&ended, place, args.once),
    }
    if let Some(error) = ended.error {
        return Err(error.into());
    }
    // A run without an end of its own has failed if it ended at all.
    let mut summaries = ended.parts.iter().map(|part| &part.summary);
    let has_failed = summaries.any(|it| if args.once { !it.is_true } else { it.cut_short.is_some() });
    Ok(if has_failed { Exit::Failed } else { Exit::Done })
}

/// Resolves when the host is to end; a second signal ends it at once. The caller listens for `signal` before anything
/// begins, so that a host that gets one while it loads its guests ends in order.
async fn asked_to_stop(signal: impl Future<Output = ()>) {
    signal.await;
    tracing::info!("stopping: what sleeps ends now, what asks a backend ends in its own time; once more stops at once");
    tokio::spawn(async {
        super::listen_for_stop().await;
        // Recordings survive a kill at any moment, and so survive this.
        output::talk("error: stopped at once, in the middle of calls");
        std::process::exit(1);
    });
}

/// Asks for another configuration at each SIGHUP, the signal by which daemons reload theirs. A signal during a reload
/// asks once more.
async fn ask_at_hangup(ask: mpsc::Sender<()>) -> Infallible {
    let mut hangups = super::listen(SignalKind::hangup(), "SIGHUP");
    while let Some(()) = async { hangups.as_mut()?.recv().await }.await {
        // If the queue is full, a reload is pending anyway.
        let _ = ask.try_send(());
    }
    std::future::pending().await
}

/// One line for each event: outcomes to stdout, warnings to stderr.
fn say(event: &Event) {
    match event.said() {
        Some(Message::Line(line)) => output::line_if_read(&line),
        Some(Message::Warning(what)) => output::warn(&what),
        None => {}
    }
}

/// A run that ended, as one document. Leaves out what the configuration does not name.
fn document(events: &[Event], ended: &Ended) -> serde_json::Result<Map<String, Value>> {
    let mut all = Map::new();
    all.insert("events".to_owned(), serde_json::to_value(events)?);
    for Part { name, summary, .. } in &ended.parts {
        all.insert((*name).to_owned(), serde_json::to_value(&summary.json)?);
    }
    Ok(all)
}

/// The last lines of each part. Scripts read the state of Services from the last line: of the names, theirs comes last.
fn conclude(ended: &Ended, place: &str, once: bool) {
    for part in &ended.parts {
        let summary = &part.summary;
        if let (true, Some(unchanged)) = (once, summary.unchanged) {
            output::line_if_read(unchanged);
        }
        summary.cut_short.iter().for_each(output::warn);
        if part.reports_source && !summary.problems.is_empty() {
            let problems = counted(summary.problems.len(), "problem", "problems");
            let held = match summary.held.join(", ") {
                none if none.is_empty() => none,
                held => format!("; kept for that: {held}"),
            };
            output::talk(&format!("warning: {problems} in {place}, see above{held}"));
        }
        for (what, why) in &summary.failed {
            output::line_if_read(&format!("{what:<24} failed   {why}"));
        }
        output::line_if_read(&summary.line);
    }
}
