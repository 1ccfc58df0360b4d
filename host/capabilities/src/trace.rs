//! The span of a request, a child of the decision's span, if tracing is enabled.
//!
//! The program decides whether tracing is enabled. With tracing disabled, each request costs a single atomic load.
//! Arguments and answers are inspected only for the span, up to a limit; neither a guest nor a journal sees it.
//!
//! ```text
//! ask -> span (name, kind, object, error) -> Tape -> backend
//! ```

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use tracing::field::Empty;
use tracing::{Level, Span};

use crate::questions::find;
use crate::reading;

/// The target of the spans of requests.
pub const TARGET: &str = "trueup::import";

/// The maximum size of inspected arguments and answers as JSON: a list of some hundred objects. Above it, a span shows
/// only the beginning.
const LOOKED_AT_BYTES_MAX: usize = 16 << 10;

/// The maximum number of characters of arguments in a span.
const SHOWN_CHARS_MAX: usize = 500;

/// The maximum number of objects that a span names.
const NAMED_MAX: usize = 8;

/// The span of a request before it is made; `None` if tracing is disabled.
pub(crate) fn question<A: Serialize + ?Sized>(name: &'static str, args: &A) -> Option<Span> {
    // An unused span costs a fifth of an empty request.
    tracing::span_enabled!(target: TARGET, Level::INFO).then(|| asked(name, args))
}

#[cold]
fn asked<A: Serialize + ?Sized>(name: &'static str, args: &A) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "question",
        otel.name = Empty,
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        kind = Empty,
        object = Empty,
        args = Empty,
        error = Empty,
    );
    span.record("otel.name", format!("{}.{name}", capability(name)));
    let (text, is_whole) = beginning(args);
    if is_whole && let Ok(args) = serde_json::from_str::<Value>(&text) {
        let objects = objects(&args);
        if !objects.kinds.is_empty() {
            span.record("kind", objects.kinds.join(", "));
        }
        if !objects.names.is_empty() {
            span.record("object", objects.listed());
        }
    }
    span.record("args", reading::beginning(&text, SHOWN_CHARS_MAX));
    span
}

/// Records the answer of a request, or its failure.
pub(crate) fn answered<R: Serialize, E: std::fmt::Display>(span: Option<&Span>, answer: &Result<R, E>) {
    if let Some(span) = span {
        take_down(span, answer);
    }
}

#[cold]
fn take_down<R: Serialize, E: std::fmt::Display>(span: &Span, answer: &Result<R, E>) {
    let error = match answer {
        Err(stop) => Some(stop.to_string()),
        Ok(answer) => error_in(answer),
    };
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

/// The beginning of a value as JSON, and whether it is complete.
fn beginning<T: Serialize + ?Sized>(value: &T) -> (String, bool) {
    let mut text = Bounded(Vec::new());
    let is_whole = serde_json::to_writer(&mut text, value).is_ok();
    (String::from_utf8_lossy(&text.0).into_owned(), is_whole)
}

/// Takes this many bytes, then refuses, which stops the writer.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LOOKED_AT_BYTES_MAX - self.0.len();
        let taken = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.0.extend_from_slice(taken);
        if taken.len() < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The objects of a request.
#[derive(Default)]
struct Objects {
    kinds: Vec<String>,
    names: Vec<String>,
    more: usize,
}

impl Objects {
    fn kind(&mut self, kind: &str) {
        let kind = kind.to_lowercase();
        if !self.kinds.contains(&kind) && self.kinds.len() < NAMED_MAX {
            self.kinds.push(kind);
        }
    }

    fn name(&mut self, name: &str) {
        if self.names.len() < NAMED_MAX {
            self.names.push(name.to_owned());
        } else {
            self.more += 1;
        }
    }

    fn listed(&self) -> String {
        let names = self.names.join(", ");
        if self.more == 0 {
            names
        } else {
            format!("{names} and {} more", self.more)
        }
    }
}

/// The objects of `{"specs": [{"Backend": {"name": ...}}]}`, of `{"refs": [{"kind": ..., "identifier": ...}]}`, of
/// `{"identifier": ...}` and of `{"neg": {"name": ..., "zone": ...}}`: the forms in `wit/`.
fn objects(args: &Value) -> Objects {
    let mut found = Objects::default();
    let list = |name: &str| args.get(name).and_then(Value::as_array).into_iter().flatten();
    for (kind, spec) in list("specs").filter_map(Value::as_object).flatten() {
        found.kind(kind);
        if let Some(name) = spec.get("name").and_then(Value::as_str) {
            found.name(name);
        }
    }
    for reference in list("refs") {
        if let Some(kind) = reference.get("kind").and_then(Value::as_str) {
            found.kind(kind);
        }
        if let Some(identifier) = reference.get("identifier").and_then(Value::as_str) {
            found.name(identifier);
        }
    }
    let of_neg = |part: &str| args.pointer(part).and_then(Value::as_str);
    if let (Some(name), Some(zone)) = (of_neg("/neg/name"), of_neg("/neg/zone")) {
        found.kind(crate::grants::NEG);
        found.name(&crate::grants::neg_scope(name, zone));
    }
    for name in ["identifier", "tag"] {
        if let Some(text) = args.get(name).and_then(Value::as_str) {
            found.name(text);
        }
    }
    found
}

/// The first error of an answer, or of a list in it.
fn error_in<R: Serialize>(answer: &R) -> Option<String> {
    let (text, is_whole) = beginning(answer);
    if !is_whole {
        // A long answer is a list of existing objects. If a list has errors, the first is found by its beginning.
        let at = text.find("{\"Err\":")?;
        return text.get(at..).map(str::to_owned);
    }
    let answer: Value = serde_json::from_str(&text).ok()?;
    let error = |value: &Value| value.get("Err").map(ToString::to_string);
    match &answer {
        Value::Array(each) => {
            let mut errors = each.iter().filter_map(error);
            let first = errors.next()?;
            let more = errors.count();
            Some(if more == 0 {
                first
            } else {
                format!("{first} and {more} more")
            })
        }
        answer => error(answer),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_is_named_by_its_capability_and_by_what_it_is_about() {
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
        let of = objects(&json!({"neg": {"name": "web", "zone": "z1"}, "endpoints": []}));
        assert_eq!(
            (of.kinds.join(","), of.listed()),
            ("neg".to_owned(), "web@z1".to_owned())
        );
        let specs: Vec<Value> = (0..10)
            .map(|at| json!({"Server": {"name": format!("s{at}")}}))
            .collect();
        let of = objects(&json!({"specs": specs, "tags": []}));
        assert_eq!((of.kinds.join(","), of.more), ("server".to_owned(), 2));
        assert!(of.listed().ends_with("s7 and 2 more"), "{}", of.listed());
        let of =
            objects(&json!({"refs": [{"kind": "Bind", "identifier": "b1"}, {"kind": "Server", "identifier": "s1"}]}));
        assert_eq!(
            (of.kinds.join(","), of.listed()),
            ("bind,server".to_owned(), "b1, s1".to_owned())
        );
    }

    #[test]
    fn errors_are_found_in_answers_and_in_lists_of_answers() {
        type Answer = Result<u32, String>;
        let of = |answers: &[Answer]| error_in(&answers);
        assert_eq!(error_in::<Answer>(&Ok(1)), None);
        assert_eq!(error_in::<Answer>(&Err("x".to_owned())).as_deref(), Some("\"x\""));
        assert_eq!(of(&[Ok(1), Ok(2)]), None);
        let error = Err("x".to_owned());
        assert_eq!(of(&[Ok(1), error.clone(), error]).as_deref(), Some("\"x\" and 1 more"));
    }

    #[test]
    fn of_a_long_value_only_the_beginning_is_looked_at() {
        let (text, is_whole) = beginning(&vec!["x".repeat(100); 10_000]);
        assert!(!is_whole && text.len() <= LOOKED_AT_BYTES_MAX, "{}", text.len());
        assert!(beginning(&1).1);
        assert!(reading::beginning(&text, SHOWN_CHARS_MAX).len() < 600);
    }
}
