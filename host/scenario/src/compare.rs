//! Compares the result of a step with the expected one.

use serde_json::{Number, Value};
use trueup_capabilities::questions;
use trueup_journal::{Kind, differences_under};

use crate::report::Problem;

/// Whether `expect_calls` lists a question: it lists effects, not means.
pub(crate) fn is_listed(call: &str) -> bool {
    questions::kind(call) != Kind::Means
}

/// Compares two values. `None` if they are equal.
pub(crate) fn values(what: &str, expected: &Value, was: &Value) -> Option<Problem> {
    let differences = differences_under("", &plain(expected), &plain(was));
    (!differences.is_empty()).then(|| Problem::new(format!("{what} differs:"), differences))
}

/// Compares a part of the state. `part`: its place in `expect_state`.
pub(crate) fn state(part: &str, expected: &Value, was: &Value) -> Option<Problem> {
    let problem = values(part, expected, was)?;
    Some(problem.observing(format!("expect_state.{part}"), was.clone()))
}

/// Compares the questions of a step, in order. Reports only the first difference: later ones follow from it.
pub(crate) fn calls(expected: &[Value], asked: &[Value]) -> Option<Problem> {
    let (expected_plain, asked_plain): (Vec<_>, Vec<_>) =
        (expected.iter().map(plain).collect(), asked.iter().map(plain).collect());
    let length = expected.len().max(asked.len());
    let index = (0..length).find(|&index| expected_plain.get(index) != asked_plain.get(index))?;
    let counts = format!("expected {}, were {}", expected.len(), asked.len());
    let position = index + 1;
    let (message, differences) = match (expected_plain.get(index), asked_plain.get(index)) {
        (Some(wanted), Some(was)) if wanted.get("call") == was.get("call") => {
            let name = wanted.get("call").and_then(Value::as_str).unwrap_or_default();
            let message = format!("call {position} of the step, {name}, differs ({counts}):");
            (message, differences_under("", wanted, was))
        }
        (wanted, was) => {
            let side = |call: Option<&Value>| call.map_or_else(|| "none".to_owned(), ToString::to_string);
            let wanted = side(wanted);
            let was = side(was);
            let differ = format!("call {position} of the step differs ({counts}):");
            (format!("{differ}\n  expected {wanted}\n  was      {was}"), Vec::new())
        }
    };
    Some(Problem::new(message, differences).observing("expect_calls", asked.into()))
}

/// Numbers in a common form: `5.0` becomes 5.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(whole(number).unwrap_or_else(|| number.clone())),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect(),
        other => other.clone(),
    }
}

fn whole(number: &Number) -> Option<Number> {
    // Up to 2^53 every whole number has an exact float.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let float = number
        .as_f64()
        .filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT_MAX)?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and at most 2^53")]
    let integer = float as i64;
    Some(integer.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_compared_as_numbers_and_text_as_text() {
        assert_eq!(values("it", &json!({"a": [5, 0.5]}), &json!({"a": [5.0, 0.5]})), None);
        assert!(values("it", &json!(5), &json!("5")).is_some());
        assert!(values("it", &json!(u64::MAX), &json!(18_446_744_073_709_551_615.0)).is_some());
        assert!(values("it", &json!(null), &json!({})).is_some());
    }

    #[test]
    fn the_first_call_that_differs_is_named() {
        let call = |name: &str, value: u64| json!({"call": name, "args": {"v": value}});
        let all = [call("kv.get", 1), call("kv.put", 2)];
        assert_eq!(calls(&all, &all), None);
        let problem = calls(&all, &[call("kv.get", 1), call("kv.put", 3)]).unwrap();
        assert_eq!(
            problem.message,
            "call 2 of the step, kv.put, differs (expected 2, were 2):"
        );
        assert_eq!(problem.differences[0].path, "args.v");
        let problem = calls(&all, &all[1..]).unwrap();
        let told = "call 1 of the step differs (expected 2, were 1):\n  \
                    expected {\"args\":{\"v\":1},\"call\":\"kv.get\"}\n  was      {\"args\":{\"v\":2},\"call\":\"kv.put\"}";
        assert_eq!(problem.message, told);
        let problem = calls(&[], &all[..1]).unwrap();
        assert!(
            problem
                .message
                .starts_with("call 1 of the step differs (expected 0, were 1):\n  expected none")
        );
    }
}
