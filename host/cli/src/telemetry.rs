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

use std::ffi::OsString;
use std::io::IsTerminal as _;

use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn, filter_fn};
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, filter::FilterExt as _};
use trueup_capabilities::trace;
use trueup_config::{LogFormat, Telemetry};
use trueup_work::decisions;

pub(crate) use self::export::Traces;

/// Host lines from `info`; lines of guests and of the simulated Engine from `warn`. This shows what the host did and
/// what went wrong, without each step.
const LOG_DEFAULT: &str = "info,guest=warn,trueup::sim=warn,kube_client=off";

/// A simulated Engine in its own process logs only the requests that it gets.
const LOG_OF_SIMULATOR: &str = "info";

/// A layer that receives events and spans.
type Looker = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts the log of a command that reads no `[telemetry]`, as the environment variable of its key sets it.
///
/// # Errors
/// One line: what the variable must be.
pub(crate) fn start_plain(is_simulator: bool) -> Result<(), String> {
    let format = match std::env::var(LogFormat::VARIABLE) {
        Ok(word) => LogFormat::named(&word)?,
        Err(_) => LogFormat::default(),
    };
    let default = if is_simulator { LOG_OF_SIMULATOR } else { LOG_DEFAULT };
    begin(vec![log(format, default)]);
    Ok(())
}

/// Starts the log of a host, and its traces if it has a collector.
///
/// # Errors
/// One line: which trace setting can't be used.
pub(crate) fn start(telemetry: &Telemetry) -> Result<Option<Traces>, String> {
    let traces = Traces::new(telemetry)?;
    let mut lookers = vec![log(telemetry.log, LOG_DEFAULT)];
    if let Some(traces) = &traces {
        decisions::name_traces(export::trace_of);
        let takes_down = dynamic_filter_fn(|metadata, context| {
            // A question outside a decision, as when an instance is rebuilt, would start a trace of its own.
            is_decision(metadata) || (is_question(metadata) && context.lookup_current().is_some())
        });
        let takes_down = takes_down.with_callsite_filter(|metadata| {
            if is_decision(metadata) {
                tracing::subscriber::Interest::always()
            } else if is_question(metadata) {
                tracing::subscriber::Interest::sometimes()
            } else {
                tracing::subscriber::Interest::never()
            }
        });
        lookers.push(traces.layer().with_filter(takes_down).boxed());
    }
    begin(lookers);
    Ok(traces)
}

fn begin(lookers: Vec<Looker>) {
    tracing_subscriber::registry().with(lookers).init();
}

fn is_decision(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == decisions::SPAN_TARGET
}

fn is_question(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == trace::TARGET
}

/// Uses colours on a terminal, unless `NO_COLOR` is set and not empty: <https://no-color.org>.
fn has_colours(is_terminal: bool, no_color: Option<OsString>) -> bool {
    is_terminal && no_color.is_none_or(|value| value.is_empty())
}

/// The log on stderr. `TRUEUP_LOG` sets the filter, in the syntax of `RUST_LOG`: `debug`, `guest=info`.
fn log(format: LogFormat, default: &str) -> Looker {
    let wanted = std::env::var("TRUEUP_LOG").unwrap_or_else(|_| default.to_owned());
    let shown = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse_lossy(wanted);
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Go on even if the reader of stderr went away.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => stderr
            .with_ansi(has_colours(
                std::io::stderr().is_terminal(),
                std::env::var_os("NO_COLOR"),
            ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_takes_the_colours_away() {
        let has = |is_terminal, value: Option<&str>| has_colours(is_terminal, value.map(OsString::from));
        assert!(has(true, None) && has(true, Some("")));
        assert!(!has(true, Some("1")) && !has(false, None));
    }
}
