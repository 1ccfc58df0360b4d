//! The span of a decision: what a log line in it is about, and the root of its trace.
//!
//! Whether anybody looks at spans is the program's business: where nobody does, the callsite is off, and nothing here is
//! done. What a span says of itself is in `docs/tracing.md`.

use std::sync::OnceLock;

use tracing::Span;
use tracing::field::Empty;
use trueup_capabilities::Host;
use trueup_journal::Journal;

/// The target of the spans of decisions; that of the questions in them is [`trueup_capabilities::trace::TARGET`].
pub const SPAN_TARGET: &str = "trueup::decision";

/// The trace that a span belongs to; none: nobody takes it down.
type TraceOf = fn(&Span) -> Option<String>;

static TRACE_OF: OnceLock<TraceOf> = OnceLock::new();

/// Says how the trace of a span is found, for the whole process. The first to say so counts.
pub fn name_traces(with: fn(&Span) -> Option<String>) {
    // There is one collector of traces in a process.
    let _ = TRACE_OF.set(with);
}

/// The trace that the span belongs to, in hexadecimal digits.
pub(super) fn trace_of(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let trace = TRACE_OF.get().and_then(|trace_of| trace_of(span))?;
    span.record("trace", trace.as_str());
    Some(trace)
}

/// The span of a call that is about to begin, in a trace of its own.
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
        let id = super::id(of, host.tape.journal().map(Journal::next_n));
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

/// It came to this; none: it ended well.
pub(crate) fn came(span: &Span, error: Option<&str>) {
    if span.is_disabled() {
        return;
    }
    match error {
        None => {
            span.record("outcome", "ok");
        }
        Some(error) => {
            span.record("outcome", error);
            span.record("otel.status_code", "error");
            span.record("otel.status_description", error);
        }
    }
}
