//! The program's diagnostics: log lines on stderr, and traces to a collector.
//!
//! Text is for people and does not mention decisions. JSON is for programs, and a line names the decision that it
//! belongs to. With tracing disabled, spans cost nothing: each layer checks only its own filter.
//!
//! ```text
//! events, spans of decisions --+-> text, or JSON (telemetry/json.rs) -> stderr
//! spans of decisions, imports -+-> queue (telemetry/export.rs) -> OTLP over HTTP
//! ```

mod export;
mod json;

use tracing::Metadata;
use tracing::subscriber::Interest;
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn, filter_fn};
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, filter::FilterExt as _};
use trueup_capabilities::trace;
use trueup_config::{LogFormat, Telemetry};
use trueup_work::decisions;

pub(crate) use self::export::Traces;

use crate::{colour, progress};

/// How much the log shows.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Verbosity {
    /// The log shows more: `-v` also what guests say, `-vv` also each request. The variable `TRUEUP_LOG` comes first.
    #[arg(long, short, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// The log shows errors only. The variable `TRUEUP_LOG` comes first.
    #[arg(long, short, global = true)]
    quiet: bool,
}

impl Verbosity {
    /// Shows what takes long, unless a program reads the log, or the operator wants errors only.
    fn show_progress(self, format: LogFormat) {
        if !self.quiet && format == LogFormat::Text {
            progress::start();
        }
    }

    /// The filter of the log; `default` if the command line says nothing.
    fn filter(self, default: &str) -> &str {
        match (self.quiet, self.verbose) {
            (true, _) => "error",
            (false, 0) => default,
            (false, 1) => LOG_WITH_GUESTS,
            (false, _) => "debug",
        }
    }
}

/// Host lines from `info`; lines of guests and of the simulated Engine from `warn`. This shows what the host did and
/// what went wrong, without each step.
const LOG_DEFAULT: &str = "info,guest=warn,trueup::sim=warn,kube_client=off";

/// Also what guests say.
const LOG_WITH_GUESTS: &str = "info,kube_client=off";

/// A simulated Engine in its own process logs only the requests that it gets.
const LOG_OF_SIMULATOR: &str = "info";

/// Whose lines a command's log has, if neither the command line nor `TRUEUP_LOG` sets a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinesOf {
    /// The host.
    Host,
    /// The guests too.
    Guests,
    /// A simulated server, whose process this is.
    Simulator,
}

/// A layer that receives events and spans.
type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts the log of a command that reads no `[telemetry]`, as the environment variable of its key sets it.
///
/// # Errors
/// One line: what the variable must be.
pub(crate) fn start_plain(lines: LinesOf, verbosity: Verbosity) -> Result<(), String> {
    let format = match std::env::var(LogFormat::VARIABLE) {
        Ok(word) => LogFormat::named(&word)?,
        Err(_) => LogFormat::default(),
    };
    let default = match lines {
        LinesOf::Host => LOG_DEFAULT,
        LinesOf::Guests => LOG_WITH_GUESTS,
        LinesOf::Simulator => LOG_OF_SIMULATOR,
    };
    let log = log(format, verbosity.filter(default));
    tracing_subscriber::registry().with(log).init();
    if lines != LinesOf::Simulator {
        verbosity.show_progress(format);
    }
    Ok(())
}

/// Starts the log of a host, and its traces if it has a collector.
///
/// # Errors
/// One line: which trace setting can't be used.
pub(crate) fn start(telemetry: &Telemetry, verbosity: Verbosity) -> Result<Option<Traces>, String> {
    let traces = Traces::new(telemetry)?;
    let mut layers = vec![log(telemetry.log, verbosity.filter(LOG_DEFAULT))];
    if let Some(traces) = &traces {
        decisions::name_traces(export::trace_of);
        let exported = dynamic_filter_fn(|metadata, context| {
            // A question outside a decision, as when an instance is rebuilt, would start a trace of its own.
            is_decision(metadata) || (is_question(metadata) && context.lookup_current().is_some())
        });
        let exported = exported.with_callsite_filter(|metadata| match metadata {
            decision if is_decision(decision) => Interest::always(),
            question if is_question(question) => Interest::sometimes(),
            _ => Interest::never(),
        });
        layers.push(traces.layer().with_filter(exported).boxed());
    }
    tracing_subscriber::registry().with(layers).init();
    verbosity.show_progress(telemetry.log);
    Ok(traces)
}

fn is_decision(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == decisions::SPAN_TARGET
}

fn is_question(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == trace::TARGET
}

/// The log on stderr. `TRUEUP_LOG` sets the filter, in the syntax of `RUST_LOG`: `debug`, `guest=info`.
fn log(format: LogFormat, default: &str) -> BoxedLayer {
    let wanted = std::env::var("TRUEUP_LOG").unwrap_or_else(|_| default.to_owned());
    let shown = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse_lossy(wanted);
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(|| progress::Stderr)
        // Go on even if the reader of stderr went away.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => stderr
            .with_ansi(colour::is_on(&std::io::stderr()))
            .with_filter(shown.and(filter_fn(|metadata| !is_decision(metadata) && !is_question(metadata))))
            .boxed(),
        LogFormat::Json => stderr
            .with_ansi(false)
            .fmt_fields(JsonFields::new())
            .event_format(json::Lines)
            // Whatever the filter, a line names the decision that it belongs to.
            .with_filter(
                shown
                    .and(filter_fn(|metadata| !is_question(metadata)))
                    .or(filter_fn(is_decision)),
            )
            .boxed(),
    }
}
