//! The span of a decision: the context of its log lines, and the root of its trace.
//!
//! The program decides whether anything subscribes to spans. With tracing disabled, the callsite is off and costs
//! nothing. `docs/tracing.md` lists the fields of a span.

use std::sync::OnceLock;

use tracing::Span;
use tracing::field::Empty;
use trueup_capabilities::Host;
use trueup_journal::Journal;

/// The target of the spans of decisions. The spans of the questions in them have
/// [`trueup_capabilities::trace::TARGET`].
pub const SPAN_TARGET: &str = "trueup::decision";

/// The trace id of a span. `None` if it is not recorded.
type TraceOf = fn(&Span) -> Option<String>;

static TRACE_OF: OnceLock<TraceOf> = OnceLock::new();

/// Sets how to find the trace id of a span, for the whole process. Only the first call has an effect.
pub fn name_traces(with: fn(&Span) -> Option<String>) {
    // Ignore the error: a process has only one trace collector.
    let _ = TRACE_OF.set(with);
}

/// The trace id of the span, in hexadecimal digits.
pub(super) fn trace_of(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let trace = TRACE_OF.get().and_then(|trace_of| trace_of(span))?;
    span.record("trace", trace.as_str());
    Some(trace)
}

/// The span of a call that is about to begin, in a new trace.
pub(crate) fn decision(host: &Host, call: &str, key: &str, cause: impl FnOnce() -> String) -> Span {
    let span = tracing::info_span!(
        target: SPAN_TARGET,
        parent: None,
        "decision",
        otel.name = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
        guest = Empty,
        version = Empty,
        digest = Empty,
        key = Empty,
        decision = Empty,
        call = Empty,
        cause = Empty,
        outcome = Empty,
        trace = Empty,
    );
    if !span.is_disabled() {
        let of = &host.identity;
        let id = of.decision(host.tape.journal().map(Journal::next_n));
        let function = call.split_once('.').map_or(call, |(_, function)| function);
        span.record("otel.name", format!("{function} {key}"))
            .record("guest", of.guest.as_str())
            .record("version", of.version.as_str())
            .record("digest", of.digest.as_str())
            .record("key", key)
            .record("decision", id)
            .record("call", call)
            .record("cause", cause());
    }
    span
}

/// Records the result. `None` if it succeeded.
pub(crate) fn came(span: &Span, error: Option<&str>) {
    if span.is_disabled() {
        return;
    }
    span.record("outcome", error.unwrap_or("ok"));
    if let Some(error) = error {
        span.record("otel.status_code", "error");
        span.record("otel.status_description", error);
    }
}
