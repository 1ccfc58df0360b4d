//! `trueup run`: brings what the configuration names true, once or until it is stopped.

use std::path::PathBuf;

use serde::Serialize;
use trueup_runtime::config::{Config, Override};
use trueup_runtime::run::{self, Event, Summary};

use crate::exit::{Ending, Exit, misused};
use crate::output::{self, Output};

/// Brings everything true, and keeps it true until it is stopped.
///
/// Reads the manifests, calls the guest for each Service of type LoadBalancer, and records every question that the guest
/// asks under `state_dir`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trueup run examples/quickstart --once\n  TRUEUP_LOG=info,guest=info,trueup::sim=warn trueup run /etc/trueup\n  trueup run trueup.toml --no-record"
)]
pub(crate) struct Args {
    /// A TOML file, or a folder with `trueup.toml`.
    config: PathBuf,
    /// Ends when every key has succeeded, or failed 5 times; exits 0 if none failed and every manifest could be read.
    #[arg(long)]
    once: bool,
    /// Keeps no recordings beyond what a restart needs.
    #[arg(long)]
    no_record: bool,
}

/// Reads a configuration under the environment, with the values of flags.
pub(super) fn read(config: &std::path::Path, overrides: &[Override]) -> Result<Config, crate::exit::Failure> {
    Config::load_under(config, overrides).map_err(misused)
}

pub(crate) fn exec(args: Args, output: Output) -> Ending {
    let no_record = Override {
        flag: "--no-record".to_owned(),
        key: "journal.record".to_owned(),
        value: "false".to_owned(),
    };
    let overrides = if args.no_record { vec![no_record] } else { Vec::new() };
    let config = read(&args.config, &overrides)?;
    let _lock = run::StateLock::take(&config.state_dir)?;
    let registry = super::registry();
    let mut events = Vec::new();
    let tell = |event: Event| match output {
        Output::Text => say(&event),
        // A run that ends is one document; one that does not is a line an event.
        Output::Json if args.once => events.push(event),
        Output::Json => json_line(&event),
    };
    let stop = async {
        super::stopped().await;
        tracing::info!(
            "stopping: what sleeps ends now, what asks a backend ends in its own time; once more stops at once"
        );
        tokio::spawn(async {
            super::stopped().await;
            // Recordings stand a kill at any moment, and so this.
            output::talk("error: stopped at once, in the middle of calls");
            std::process::exit(1);
        });
    };
    let summary = if args.once {
        super::block_on(run::once(&config, &registry, stop, tell))?
    } else {
        super::block_on(run::watch(&config, &registry, stop, tell))?
    }?;
    match output {
        Output::Json if args.once => output::json(&serde_json::json!({ "events": events, "summary": summary }))?,
        Output::Json => json_line(&summary),
        Output::Text => conclude(&summary, args.once),
    }
    let failed = if args.once {
        !summary.is_true()
    } else {
        summary.cut_short.is_some()
    };
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

fn json_line(value: &impl Serialize) {
    if let Ok(line) = serde_json::to_string(value) {
        output::line_if_read(&line);
    }
}

/// One line for each thing that happened: what came of a key to stdout, warnings to stderr.
fn say(event: &Event) {
    match event {
        Event::Problem(problem) => output::talk(&format!("warning: {problem}")),
        Event::Held { key } => output::line_if_read(&format!(
            "{key:<24} held     its objects are kept while a manifest can't be read"
        )),
        Event::Failed {
            key,
            error,
            again_in_ms: Some(ms),
        } => {
            output::talk(&format!("warning: {key}: {error}; trying again in {}", seconds(*ms)));
        }
        Event::Failed {
            key,
            error,
            again_in_ms: None,
        } => output::line_if_read(&format!("{key:<24} failed   {error}")),
        Event::True {
            key,
            gone: true,
            destroyed,
            ..
        } => output::line_if_read(&format!("{key:<24} gone     {destroyed} destroyed")),
        Event::True {
            key,
            gone: false,
            created,
            destroyed,
            in_service,
        } => {
            let serving = in_service.iter().map(|(address, ports)| {
                let word = if ports.len() == 1 { "port" } else { "ports" };
                let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
                format!("{address} {word} {}", ports.join(", "))
            });
            let serving = serving.collect::<Vec<_>>().join("; ");
            let serving = if serving.is_empty() {
                "nothing in service".to_owned()
            } else {
                format!("in service: {serving}")
            };
            let did = if (*created, *destroyed) == (0, 0) {
                "nothing to do".to_owned()
            } else {
                format!("{created} created, {destroyed} destroyed")
            };
            output::line_if_read(&format!("{key:<24} true     {did}; {serving}"));
        }
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

fn conclude(summary: &Summary, once: bool) {
    if once && summary.is_true() && (summary.created, summary.destroyed) == (0, 0) {
        output::line_if_read("nothing changed: everything was true already");
    }
    if let Some(why) = &summary.cut_short {
        output::talk(&format!("warning: {why}"));
    }
    if !summary.problems.is_empty() {
        let held = if summary.held.is_empty() {
            String::new()
        } else {
            format!("; kept for that: {}", summary.held.join(", "))
        };
        output::talk(&format!(
            "warning: {} in the manifests, see above{held}",
            problems(summary.problems.len())
        ));
    }
    output::line_if_read(&summary.to_string());
}

fn problems(count: usize) -> String {
    if count == 1 {
        "1 problem".to_owned()
    } else {
        format!("{count} problems")
    }
}
