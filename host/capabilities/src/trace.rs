//! The span of a request, a child of the decision's span, if tracing is enabled.
//!
//! The program decides whether tracing is enabled. With tracing disabled, each request costs a single atomic load.
//! Arguments and answers are shown only in the span, up to a limit; neither a guest nor a journal sees it.
//!
//! ```text
//! ask -> span (name, args, error) -> Tape -> backend
//! ```

use serde::Serialize;
use serde_json::Value;
use tracing::field::Empty;
use tracing::{Level, Span};

use crate::questions::find;
use crate::reading;

/// The target of the spans of requests.
pub const TARGET: &str = "trueup::import";

/// The maximum size of answers that are searched for an error, as JSON: a list of some hundred objects.
const LOOKED_AT_BYTES_MAX: usize = 16 << 10;

/// The maximum number of characters of arguments in a span.
const SHOWN_CHARS_MAX: usize = 500;

/// The span of a request before it is made; none if tracing is disabled.
pub(crate) fn question<A: Serialize + ?Sized>(name: &'static str, args: &A) -> Span {
    // An unused span costs a fifth of an empty request.
    if !tracing::span_enabled!(target: TARGET, Level::INFO) {
        return Span::none();
    }
    let span = tracing::info_span!(
        target: TARGET,
        "question",
        otel.name = Empty,
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        args = Empty,
        error = Empty,
    );
    span.record("otel.name", format!("{}.{name}", capability(name)));
    span.record("args", reading::beginning(&beginning(args), SHOWN_CHARS_MAX));
    span
}

/// Records the answer of a request, or its failure.
pub(crate) fn answered<R: Serialize, E: std::fmt::Display>(span: &Span, answer: &Result<R, E>) {
    if span.is_none() {
        return;
    }
    let error = answer.as_ref().map_or_else(|stop| Some(stop.to_string()), error_in);
    if let Some(error) = error {
        let error = reading::beginning(&error, SHOWN_CHARS_MAX);
        span.record("error", error.as_str());
        span.record("otel.status_code", "error");
        span.record("otel.status_description", error.as_str());
    }
}

/// The package in `wit/` that declares the interface: journals name requests without it.
fn capability(name: &str) -> &'static str {
    if let Some((capability, _)) = find(name) {
        return capability.package;
    }
    match name.split('.').next().unwrap_or_default() {
        "clock" | "timers" | "random" | "log" | "metrics" => "host",
        _ => "wasi",
    }
}

/// The beginning of a value as JSON.
fn beginning<T: Serialize + ?Sized>(value: &T) -> String {
    let mut text = vec![0; LOOKED_AT_BYTES_MAX];
    let mut room = text.as_mut_slice();
    // A full slice takes no more, which stops the writer.
    let _ = serde_json::to_writer(&mut room, value);
    let left = room.len();
    text.truncate(LOOKED_AT_BYTES_MAX - left);
    String::from_utf8_lossy(&text).into_owned()
}

/// The first error of an answer, or of a list in it. Texts in an answer never look like one: their quotes are escaped.
fn error_in<R: Serialize>(answer: &R) -> Option<String> {
    let text = beginning(answer);
    let (_, error) = text.split_once("{\"Err\":")?;
    let mut first = serde_json::Deserializer::from_str(error).into_iter::<Value>();
    let whole = first.next().and_then(Result::ok);
    Some(whole.map_or_else(|| error.to_owned(), |error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_named_by_its_capability() {
        let names = [
            "api.create",
            "store.append",
            "sandboxes.list-running",
            "clock.now-ms",
            "poll.poll",
            "api.attach",
            "kv.commit",
            "nftables.apply",
            "renderer.add-service",
        ];
        let expected = [
            "lbaas",
            "checkpoint",
            "cri",
            "host",
            "wasi",
            "neg",
            "etcd",
            "service",
            "service",
        ];
        assert_eq!(names.map(capability), expected);
    }

    #[test]
    fn errors_are_found_in_answers_and_in_lists_of_answers() {
        type Answer = Result<u32, String>;
        let of = |answers: &[Answer]| error_in(&answers);
        assert_eq!(error_in::<Answer>(&Ok(1)), None);
        assert_eq!(error_in(&"{\"Err\":1}"), None);
        assert_eq!(error_in::<Answer>(&Err("x".to_owned())).as_deref(), Some("\"x\""));
        assert_eq!(of(&[Ok(1), Ok(2)]), None);
        let error = Err("x".to_owned());
        assert_eq!(of(&[Ok(1), error.clone(), error]).as_deref(), Some("\"x\""));
    }

    #[test]
    fn of_a_long_value_only_the_beginning_is_looked_at() {
        let text = beginning(&vec!["x".repeat(100); 10_000]);
        assert_eq!(text.len(), LOOKED_AT_BYTES_MAX);
        assert!(reading::beginning(&text, SHOWN_CHARS_MAX).len() < 600);
    }
}
