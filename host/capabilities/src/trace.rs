//! The span of a request, a child of the decision's span, if tracing is enabled.
//!
//! The program decides whether tracing is enabled. With tracing disabled, each request costs a single atomic load.
//! Arguments and answers are inspected only for the span, up to a limit; neither a guest nor a journal sees it.
//!
//! ```text
//! ask -> span (name, kind, object, error) -> Tape -> backend
//! ```

use serde::Serialize;
use serde_json::Value;
use tracing::field::Empty;
use tracing::{Level, Span};

use crate::grants::{NEG, neg_scope};
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
        kind = Empty,
        object = Empty,
        args = Empty,
        error = Empty,
    );
    span.record("otel.name", format!("{}.{name}", capability(name)));
    let (text, is_whole) = beginning(args);
    if is_whole && let Ok(args) = serde_json::from_str::<Value>(&text) {
        let (kinds, names) = objects(&args);
        if !kinds.is_empty() {
            span.record("kind", kinds.join(", "));
        }
        if !names.is_empty() {
            span.record("object", listed(&names));
        }
    }
    span.record("args", reading::beginning(&text, SHOWN_CHARS_MAX));
    span
}

/// Records the answer of a request, or its failure.
pub(crate) fn answered<R: Serialize, E: std::fmt::Display>(span: &Span, answer: &Result<R, E>) {
    if span.is_none() {
        return;
    }
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
    let mut text = vec![0; LOOKED_AT_BYTES_MAX];
    let mut room = text.as_mut_slice();
    // A full slice takes no more, which stops the writer.
    let is_whole = serde_json::to_writer(&mut room, value).is_ok();
    let left = room.len();
    text.truncate(LOOKED_AT_BYTES_MAX - left);
    (String::from_utf8_lossy(&text).into_owned(), is_whole)
}

fn text<'a>(of: &'a Value, member: &str) -> Option<&'a str> {
    of.get(member).and_then(Value::as_str)
}

/// The kinds and names of the objects of `{"specs": [{"Backend": {"name": ...}}]}`, of
/// `{"refs": [{"kind": ..., "identifier": ...}]}`, of `{"identifier": ...}` and of
/// `{"neg": {"name": ..., "zone": ...}}`: the forms in `wit/`.
fn objects(args: &Value) -> (Vec<String>, Vec<String>) {
    let (mut kinds, mut names) = (Vec::new(), Vec::new());
    let mut found = |kind: Option<&str>, name: Option<&str>| {
        let kind = kind.map(str::to_lowercase);
        kinds.extend(kind.filter(|kind| !kinds.contains(kind)));
        names.extend(name.map(str::to_owned));
    };
    let list = |name: &str| args.get(name).and_then(Value::as_array).into_iter().flatten();
    for (kind, spec) in list("specs").filter_map(Value::as_object).flatten() {
        found(Some(kind), text(spec, "name"));
    }
    for reference in list("refs") {
        found(text(reference, "kind"), text(reference, "identifier"));
    }
    let of_neg = |part: &str| args.pointer(part).and_then(Value::as_str);
    if let (Some(name), Some(zone)) = (of_neg("/neg/name"), of_neg("/neg/zone")) {
        found(Some(NEG), Some(&neg_scope(name, zone)));
    }
    found(None, text(args, "identifier"));
    found(None, text(args, "tag"));
    (kinds, names)
}

fn listed(names: &[String]) -> String {
    let shown = names.get(..NAMED_MAX).unwrap_or(names);
    and_more(shown.join(", "), names.len() - shown.len())
}

fn and_more(shown: String, more: usize) -> String {
    match more {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
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
            Some(and_more(first, errors.count()))
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
        let (kinds, names) = objects(&json!({"neg": {"name": "web", "zone": "z1"}, "endpoints": []}));
        assert_eq!((kinds.join(","), listed(&names)), ("neg".into(), "web@z1".into()));
        let specs: Vec<Value> = (0..10)
            .map(|at| json!({"Server": {"name": format!("s{at}")}}))
            .collect();
        let (kinds, names) = objects(&json!({"specs": specs, "tags": []}));
        assert_eq!(kinds.join(","), "server");
        assert!(listed(&names).ends_with("s7 and 2 more"), "{}", listed(&names));
        let refs = json!([{"kind": "Bind", "identifier": "b1"}, {"kind": "Server", "identifier": "s1"}]);
        let (kinds, names) = objects(&json!({"refs": refs}));
        assert_eq!(
            (kinds.join(","), listed(&names)),
            ("bind,server".into(), "b1, s1".into())
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
