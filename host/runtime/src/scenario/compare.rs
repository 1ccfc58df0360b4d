//! Compares the result of a step with the expected one.

use serde_json::{Number, Value};
use trueup_capabilities::neg::simulated::Neg;
use trueup_capabilities::questions;
use trueup_journal::{Kind, differences_under};

use super::report::Problem;

/// Whether `expect_calls` lists a question: it lists effects, not means.
pub(super) fn is_listed(call: &str) -> bool {
    questions::kind(call) != Kind::Means
}

/// Compares two values. `None` if they are equal.
pub(super) fn values(what: &str, expected: &Value, was: &Value) -> Option<Problem> {
    let differences = differences_under("", &plain(expected), &plain(was));
    (!differences.is_empty()).then(|| Problem {
        message: format!("{what} differs:"),
        differences,
    })
}

/// Compares the questions of a step, in order. Reports only the first difference: later ones follow from it.
pub(super) fn calls(expected: &[Value], asked: &[Value]) -> Option<Problem> {
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
            let message = format!(
                "call {position} of the step differs ({counts}):\n  expected {}\n  was      {}",
                side(wanted),
                side(was)
            );
            (message, Vec::new())
        }
    };
    Some(Problem { message, differences })
}

/// Resources of the LBaaS API by kind then identifier, tags sorted.
pub(super) fn sorted_resources(mut resources: Vec<Value>) -> Value {
    /// The order of the contract.
    const KINDS: [&str; 4] = ["Backend", "Frontend", "Bind", "Server"];
    for resource in &mut resources {
        if let Some(Value::Array(tags)) = resource.get_mut("tags") {
            tags.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        }
    }
    resources.sort_by_cached_key(|resource| {
        let kind = resource
            .get("spec")
            .and_then(|spec| KINDS.iter().position(|kind| spec.get(kind).is_some()));
        let identifier = resource.get("identifier").and_then(Value::as_str).unwrap_or_default();
        (kind, identifier.to_owned())
    });
    Value::Array(resources)
}

/// NEGs sorted by name and zone, with endpoints in their order. Anything else remains unchanged.
pub(super) fn sorted_negs(negs: Vec<Value>) -> Value {
    let typed: Result<Vec<Neg>, _> = negs.iter().cloned().map(serde_json::from_value).collect();
    let Ok(mut sorted) = typed else {
        return Value::Array(negs);
    };
    sorted.sort_by_cached_key(Neg::key);
    sorted.iter_mut().for_each(|neg| neg.endpoints.sort());
    serde_json::to_value(sorted).unwrap_or(Value::Array(negs))
}

/// Compares stored checkpoints. `data` is compared as JSON if both sides are JSON text.
pub(super) fn checkpoints(mut expected: Value, mut was: Value) -> Option<Problem> {
    let json = |checkpoint: &Value| -> Option<Value> {
        let data = checkpoint.get("data")?.as_str()?;
        serde_json::from_str(data).ok()
    };
    if let (Some(wanted), Some(is)) = (json(&expected), json(&was)) {
        for (checkpoint, data) in [(&mut expected, wanted), (&mut was, is)] {
            if let Some(place) = checkpoint.get_mut("data") {
                *place = data;
            }
        }
    }
    values("checkpoint", &expected, &was)
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
    fn stored_data_is_compared_as_json_where_both_sides_are() {
        let stored = |data: &str| json!({"data": data, "entries": ["{}"]});
        assert_eq!(
            checkpoints(stored(r#"{"a":1,"b":[]}"#), stored(r#"{"b": [], "a": 1}"#)),
            None
        );
        assert_eq!(checkpoints(stored("no JSON"), stored("no JSON")), None);
        assert_eq!(checkpoints(Value::Null, Value::Null), None);
        let problem = checkpoints(stored(r#"{"a":1}"#), stored(r#"{"a":2}"#)).unwrap();
        assert_eq!(problem.differences[0].path, "data.a");
        assert!(
            checkpoints(stored("x"), stored(r#""x""#)).is_some(),
            "text is not a JSON string"
        );
        assert!(checkpoints(Value::Null, stored("x")).is_some());
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

    #[test]
    fn negs_come_by_name_then_zone_and_what_is_none_stays() {
        let endpoint = |ip: &str| json!({"ip": ip, "ipv6": "", "port": "80", "node": "n"});
        let neg = |name: &str, zone: &str, ips: &[&str]| {
            let endpoints: Vec<Value> = ips.iter().map(|ip| endpoint(ip)).collect();
            json!({"name": name, "zone": zone, "subnet": "s", "endpoints": endpoints})
        };
        let sorted = sorted_negs(vec![
            neg("b", "z1", &["10.0.0.10", "10.0.0.9"]),
            neg("a", "z2", &[]),
            neg("a", "z1", &[]),
        ]);
        let expected = [
            neg("a", "z1", &[]),
            neg("a", "z2", &[]),
            neg("b", "z1", &["10.0.0.9", "10.0.0.10"]),
        ];
        assert_eq!(sorted, json!(expected));
        let none = vec![json!({"name": "b"}), json!(1)];
        assert_eq!(sorted_negs(none.clone()), Value::Array(none));
    }

    #[test]
    fn resources_come_by_kind_then_identifier() {
        let resource =
            |kind: &str, identifier: &str| json!({"identifier": identifier, "tags": ["b", "a"], "spec": {kind: {}}});
        let sorted = sorted_resources(vec![
            resource("Server", "a"),
            resource("Bind", "b"),
            resource("Backend", "z"),
            resource("Frontend", "c"),
            resource("Backend", "b-10"),
        ]);
        let names: Vec<_> = sorted
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["identifier"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["b-10", "z", "c", "b", "a"]);
        assert_eq!(sorted[0]["tags"], json!(["a", "b"]));
    }
}
