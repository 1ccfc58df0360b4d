//! The decisions of another guest, compared with a recording: its writes for each object and its results.

use std::sync::Arc;

use serde_json::{Value, json};

use super::replays::result;
use super::segment;
use crate::{Ending, Kind, Outcome, Question, Tape};

fn is(name: &str) -> Question {
    let (kind, list) = match name {
        "clock.now-ms" | "timers.schedule" => (Kind::Means, None),
        "api.get" => (Kind::Read, Some("refs")),
        "api.list" => (Kind::Read, None),
        _ => (Kind::Write, Some("specs")),
    };
    let object = |args: &Value| args.get("name").unwrap_or(args).to_string();
    Question { kind, list, object }
}

/// A call that lists, creates two objects, reads both and ends.
const DECIDED: [&str; 7] = [
    r#"{"n":1,"at_ms":9,"call":"r.reconcile","args":{"a":1}}"#,
    r#"{"n":2,"ask":"clock.now-ms","args":{},"answer":9}"#,
    r#"{"n":3,"ask":"api.list","args":{"tag":"t"},"answer":[]}"#,
    r#"{"n":4,"ask":"api.create","args":{"specs":[{"name":"a","port":1},{"name":"b","port":2}]},"answer":["a-1","b-1"]}"#,
    r#"{"n":5,"ask":"api.get","args":{"refs":["a-1","b-1"]},"answer":["pending","ok"]}"#,
    r#"{"n":6,"ask":"api.get","args":{"refs":["a-1"]},"answer":["ok"]}"#,
    r#"{"n":7,"result":{"Ok":{"created":2}}}"#,
];

/// Compares the actions of a different guest in the call of [`DECIDED`]; each question with its expected answer.
fn decide(asks: &[(&str, Value, Value)], ending: &Ending) -> Outcome {
    let mut tape = Tape::compare_decisions(segment(&DECIDED), "sha256:other", Arc::default(), is);
    assert_eq!(tape.next_call().map(|(n, _)| n), Some(1));
    for (name, args, expected) in asks {
        let live = || -> Result<Value, _> { Ok(json!("live")) };
        match tape.ask_now(name, args, live) {
            Ok(answer) => assert_eq!(&answer, expected, "{name} {args}"),
            Err(_) => break,
        }
    }
    let _ = tape.end_call(ending);
    tape.replay_outcome().expect("a replay")
}

#[test]
fn another_make_may_read_otherwise_and_write_one_by_one() {
    let create = |name: &str, port: u32| json!({"specs": [{"port": port, "name": name}]});
    let get = |reference: &str| json!({"refs": [reference]});
    let asks = [
        ("random.next-u64", json!({}), json!("live")),
        ("clock.now-ms", json!({}), json!(9)),
        ("clock.now-ms", json!({}), json!("live")),
        ("api.list", json!({"tag": "t"}), json!([])),
        ("api.list", json!({"tag": "t"}), json!([])),
        // Objects in another order, each with its own answer.
        ("api.create", create("b", 2), json!(["b-1"])),
        ("api.create", create("a", 1), json!(["a-1"])),
        ("api.get", get("a-1"), json!(["pending"])),
        ("api.get", get("a-1"), json!(["ok"])),
        ("api.get", get("a-1"), json!(["ok"])),
    ];
    let is_random_means = |name: &str| Question {
        kind: if name.starts_with("random.") {
            Kind::Means
        } else {
            is(name).kind
        },
        ..is(name)
    };
    let mut tape = Tape::compare_decisions(segment(&DECIDED), "sha256:other", Arc::default(), is_random_means);
    tape.next_call().expect("a call");
    for (name, args, expected) in &asks {
        let live = || -> Result<Value, _> { Ok(json!("live")) };
        assert_eq!(&tape.ask_now(name, args, live).unwrap(), expected, "{name} {args}");
    }
    tape.end_call(&result(2)).unwrap();
    let outcome = tape.replay_outcome().unwrap();
    assert!(outcome.is_identical());
    assert_eq!(
        outcome.to_string(),
        "identical: 1 call, 8 entries; 3 reads differ, the first: api.get {\"refs\":[\"b-1\"]} of entry 5 was not asked"
    );
}

#[test]
fn another_write_or_result_is_a_difference() {
    let list = ("api.list", json!({"tag": "t"}), json!([]));
    let both = |b: u32| json!({"specs": [{"name": "a", "port": 1}, {"name": "b", "port": b}]});
    let told = |asks: &[(&str, Value, Value)], ending: &Ending| decide(asks, ending).one_line();
    let made = ("api.create", both(2), json!(["a-1", "b-1"]));
    assert_eq!(
        told(&[list.clone(), ("api.create", both(3), json!(null))], &result(2)),
        "diverged at entry 4: `api.create`: args.specs[1].port: recorded 2, replayed 3"
    );
    let one = json!({"specs": [{"name": "a", "port": 1}]});
    assert_eq!(
        told(&[("api.create", one.clone(), json!(["a-1"]))], &result(2)),
        "diverged at entry 4: a recorded write was not made: api.create {\"specs\":[{\"name\":\"b\",\"port\":2}]}"
    );
    let twice = [made.clone(), ("api.create", one, json!(null))];
    assert_eq!(
        told(&twice, &result(2)),
        "diverged at entry 7: a write that was not recorded: api.create {\"specs\":[{\"name\":\"a\",\"port\":1}]}"
    );
    assert_eq!(
        told(&[made], &result(3)),
        "diverged at entry 7: `r.reconcile`: result.Ok.created: recorded 2, replayed 3"
    );
}

#[test]
fn a_read_that_was_never_recorded_leaves_a_call_undecided() {
    let undecided = |asks: &[(&str, Value, Value)]| match decide(asks, &result(2)) {
        Outcome::AskedUnrecorded { n, elsewhere, .. } => (n, elsewhere),
        other => panic!("{other}"),
    };
    assert_eq!(undecided(&[("api.list", json!({"tag": "u"}), json!(null))]), (7, None));
    // Its own writes would be in the list by now.
    let list = ("api.list", json!({"tag": "t"}), json!([]));
    let both = json!({"specs": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]});
    let made = ("api.create", both, json!(["a-1", "b-1"]));
    assert_eq!(undecided(&[list.clone(), made, list]), (7, Some(3)));
}
