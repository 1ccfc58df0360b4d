//! Replays that accept differences in some fields.

use std::sync::Arc;

use serde_json::{Value, json};

use super::replays::{CALL, create};
use super::{DIGEST, segment};
use crate::{Accepted, Ending, Outcome, Tape};

/// Rules of `(entry, field)`.
fn accepting(rules: &[(&str, &str)]) -> Arc<Accepted> {
    let rule = |(entry, field): &(&str, &str)| {
        serde_json::from_value(json!({"entry": entry, "field": field, "why": "a test"})).unwrap()
    };
    Arc::new(Accepted(rules.iter().map(rule).collect()))
}

/// Replays one call that asks `create(port)` and returns `created`.
fn replay_accepting(rules: &[(&str, &str)], port: u32, created: u32) -> Outcome {
    let recording = segment(&[
        CALL,
        r#"{"n":2,"ask":"api.create","args":{"specs":[{"Bind":{"port":80}}]},"answer":{"Ok":"bind-1"}}"#,
        r#"{"n":3,"result":{"Ok":{"created":1,"rounds":1}}}"#,
    ]);
    let mut tape = Tape::replay_accepting(recording, DIGEST, accepting(rules));
    tape.next_call().unwrap();
    let (name, args) = create(port);
    let answer = tape.ask_now(name, &args, || -> Result<Value, _> {
        panic!("a replay asks no backend")
    });
    if let Ok(answer) = answer {
        assert_eq!(answer, json!({"Ok": "bind-1"}), "the recorded answer");
        let _ = tape.end_call(&Ending::result(&json!({"Ok": {"created": created, "rounds": 1}})).unwrap());
    }
    tape.replay_outcome().unwrap()
}

#[test]
fn differences_in_accepted_fields_alone_count_as_recorded() {
    let port = ("api.create", "args.specs[*].Bind.port");
    let created = ("result of r.reconcile", "result.Ok.created");
    for (rules, told) in [
        (
            &[port, created][..],
            "identical: 1 call, 4 entries, 2 accepted differences",
        ),
        (
            &[port],
            "diverged at entry 3: `r.reconcile`: result.Ok.created: recorded 1, replayed 2",
        ),
        (
            &[created],
            "diverged at entry 2: `api.create`: args.specs[0].Bind.port: recorded 80, replayed 81",
        ),
        (
            &[("api.destroy", "args.**"), ("result of r.status", "result.**")],
            "diverged at entry 2: `api.create`: args.specs[0].Bind.port: recorded 80, replayed 81",
        ),
    ] {
        let outcome = replay_accepting(rules, 81, 2);
        assert_eq!(outcome.one_line(), told);
    }
    let same = replay_accepting(&[port, created], 80, 1);
    assert_eq!(same.tally().unwrap().accepted, 0, "nothing to accept");
    assert!(!serde_json::to_string(&same).unwrap().contains("accepted"));
}
