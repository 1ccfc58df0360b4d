//! The program's diagnostics: log lines on stderr, and traces to a collector.
//!
//! Text is for people and does not mention decisions. JSON is for programs, and a line names the decision that it
//! belongs to. With tracing disabled, spans cost nothing: each layer checks only its own filter.
//!
//! ```text
//! events, spans of decisions --+-> text, or JSON -> stderr
//! spans of decisions, imports -+-> queue (telemetry/export.rs) -> OTLP over HTTP
//! ```

mod export;

use std::fmt;

use serde_json::{Map, Value};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn, filter_fn};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
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
pub(crate) const LOG_DEFAULT: &str = "info,guest=warn,trueup::sim=warn,kube_client=off";

/// Also what guests say.
pub(crate) const LOG_WITH_GUESTS: &str = "info,kube_client=off";

/// A simulated Engine in its own process logs only the requests that it gets.
pub(crate) const LOG_OF_SIMULATOR: &str = "info";

/// A layer that receives events and spans.
type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts the log of a command that reads no `[telemetry]`, as the environment variable of its key sets it. `default`:
/// the filter if neither the command line nor `TRUEUP_LOG` sets one.
///
/// # Errors
/// One line: what the variable must be.
pub(crate) fn start_plain(default: &str, verbosity: Verbosity) -> Result<(), String> {
    let format = match std::env::var(LogFormat::VARIABLE) {
        Ok(word) => LogFormat::named(&word)?,
        Err(_) => LogFormat::default(),
    };
    let log = log(format, verbosity.filter(default));
    tracing_subscriber::registry().with(log).init();
    verbosity.show_progress(format);
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
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let shown = filter.parse_lossy(wanted);
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(|| progress::Stderr)
        // Go on even if the reader of stderr went away.
        .log_internal_errors(false);
    let not_asked = |shown: EnvFilter| shown.and(filter_fn(|metadata| !is_question(metadata)));
    match format {
        LogFormat::Text => stderr
            .with_ansi(colour::is_on(&std::io::stderr()))
            .with_filter(not_asked(shown).and(filter_fn(|metadata| !is_decision(metadata))))
            .boxed(),
        LogFormat::Json => stderr
            .with_ansi(false)
            .fmt_fields(JsonFields::new())
            .event_format(JsonLines)
            // Whatever the filter, a line names the decision that it belongs to.
            .with_filter(not_asked(shown).or(filter_fn(is_decision)))
            .boxed(),
    }
}

/// The prefix of span fields that are not data, but set how a trace names the span.
const OF_TRACES: &str = "otel.";

/// Lines of log as JSON: one object a line, with the fields of the event and of the spans that it is in, side by side.
/// Writes `{"timestamp","level","target","message", ...}`.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Map::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let of_span = extensions.get::<FormattedFields<N>>();
            let of_span = parsed(of_span.map_or("", |fields| &fields.fields)).into_iter();
            fields.extend(of_span.filter(|(name, _)| !name.starts_with(OF_TRACES)));
        }
        // The fields of the event override those of its spans.
        let mut own = String::new();
        context.format_fields(Writer::new(&mut own), event)?;
        fields.extend(parsed(&own));
        let message = fields.remove("message").unwrap_or_else(|| Value::from(""));
        let metadata = event.metadata();
        let head = [
            ("timestamp", Value::from(format!("{:.6}", jiff::Timestamp::now()))),
            ("level", Value::from(metadata.level().as_str())),
            ("target", Value::from(metadata.target())),
            ("message", message),
        ];
        fields.retain(|name, _| head.iter().all(|(taken, _)| taken != name));
        // This order makes a raw line readable.
        let head = head.map(|(name, value)| (name.to_owned(), value)).into_iter();
        let member = |(name, value): (String, Value)| format!("{}:{value}", Value::from(name));
        let all: Vec<String> = head.chain(fields).map(member).collect();
        writeln!(writer, "{{{}}}", all.join(","))
    }
}

/// What `JsonFields` wrote.
fn parsed(fields: &str) -> Map<String, Value> {
    serde_json::from_str(fields).unwrap_or_default()
}
