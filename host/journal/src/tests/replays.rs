//! Replays: every outcome, and its text.

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{DIGEST, ask, raw, segment};
use crate::{Ending, Outcome, Segment, Tally, Tape, TapeError};

pub(super) const CALL: &str = r#"{"n":1,"at_ms":9,"call":"r.reconcile","args":{"a":1}}"#;
const GET: &str = r#"{"n":2,"ask":"api.get","args":{"refs":["x"],"deep":true},"answer":{"Ok":[1]}}"#;
const CREATE: &str = r#"{"n":3,"ask":"api.create","args":{"specs":[{"Bind":{"port":80}}]},"answer":{"Ok":"bind-1"}}"#;
const RESULT: &str = r#"{"n":4,"result":{"Ok":{"created":1}}}"#;
/// A call that ended, with every line of its recording.
const RECORDED: [&str; 4] = [CALL, GET, CREATE, RESULT];

/// Replays the one call of `recording`: the guest asks these questions, and ends so if it was not stopped before.
/// Returns the outcome, and what stopped the guest.
fn replay(recording: Segment, digest: &str, asks: &[(&str, Value)], ending: Ending) -> (Outcome, Option<TapeError>) {
    let mut tape = Tape::replay(recording, digest);
    let (n, call) = tape.next_call().expect("a recorded call");
    assert_eq!(
        (n, call.at_ms, call.name.as_str(), call.args.get()),
        (1, 9, "r.reconcile", r#"{"a":1}"#)
    );
    let mut stopped = None;
    for (name, args) in asks {
        if let Err(error) = asked::<Value>(&mut tape, name, args) {
            stopped = Some(error);
            break;
        }
    }
    let ending = if stopped.is_some() {
        Ending::Trap("stopped by the tape".into())
    } else {
        ending
    };
    let _ = tape.end_call(&ending);
    assert!(tape.next_call().is_none());
    (tape.replay_outcome().expect("a replay"), stopped)
}

fn get() -> (&'static str, Value) {
    // The recording has these fields in another order: values are compared, not only text.
    ("api.get", json!({"deep": true, "refs": ["x"]}))
}

pub(super) fn create(port: u32) -> (&'static str, Value) {
    ("api.create", json!({"specs": [{"Bind": {"port": port}}]}))
}

pub(super) fn result(created: u32) -> Ending {
    Ending::result(&json!({"Ok": {"created": created}})).unwrap()
}

/// The recorded answer to a question.
pub(super) fn asked<R: Serialize + DeserializeOwned>(
    tape: &mut Tape,
    name: &str,
    args: &Value,
) -> Result<R, TapeError> {
    tape.ask_now(name, args, || panic!("a replay asks no backend"))
}

/// The outcome of a replay in which nothing differed.
pub(super) fn identical(calls: u64, entries: u64) -> Outcome {
    Outcome::Identical(Tally {
        calls,
        entries,
        ..Tally::default()
    })
}

/// The outcome of a replay that left these entries unused, and ended no call another way.
fn unused(n: u64, count: u64) -> Option<Outcome> {
    let ending = None;
    Some(Outcome::Unused { n, count, ending })
}

#[track_caller]
fn check(lines: &[&str], asks: &[(&str, Value)], ending: Ending, told: &str) {
    let (outcome, _) = replay(segment(lines), DIGEST, asks, ending);
    assert_eq!(outcome.to_string(), told);
    assert_eq!(outcome.is_identical(), told.starts_with("identical"));
}

#[test]
fn the_same_is_identical_and_gets_the_recorded_answers() {
    let told = "identical: 1 call, 5 entries";
    check(&RECORDED, &[get(), create(80)], result(1), told);
    let mut tape = Tape::replay(segment(&[r#"{"n":1,"ask":"a.b","args":{},"answer":[1,"x"]}"#]), "");
    let answer: (u32, String) = asked(&mut tape, "a.b", &json!({})).unwrap();
    assert_eq!(answer, (1, "x".to_owned()));
    assert!(tape.next_call().is_none());
    assert_eq!(tape.replay_outcome(), Some(identical(0, 2)));
}

#[test]
fn another_argument_diverges_at_its_entry_field_by_field() {
    let told = "diverged at entry 3: `api.create`\n  args.specs[0].Bind.port: recorded 80, replayed 81";
    check(&RECORDED, &[get(), create(81)], result(1), told);
}

#[test]
fn another_question_diverges_and_both_are_told() {
    let told = "diverged at entry 2\n  recorded: api.get {\"refs\":[\"x\"],\"deep\":true}\n  \
         asked:    api.create {\"specs\":[{\"Bind\":{\"port\":80}}]}";
    check(&RECORDED, &[create(80)], result(1), told);
}

#[test]
fn another_result_diverges_at_the_ending() {
    let told = "diverged at entry 4: `r.reconcile`\n  result.Ok.created: recorded 1, replayed 2";
    check(&RECORDED, &[get(), create(80)], result(2), told);
    let told = "diverged at entry 4: `r.reconcile`\n  recorded: result {\"Ok\":{\"created\":1}}\n  replayed: trap \"unreachable\"";
    check(
        &RECORDED,
        &[get(), create(80)],
        Ending::Trap("unreachable".into()),
        told,
    );
}

#[test]
fn an_edited_answer_diverges_where_something_depends_on_it() {
    let recording = [CALL, r#"{"n":2,"ask":"a.size","args":{},"answer":81}"#, CREATE, RESULT];
    let mut tape = Tape::replay(segment(&recording), DIGEST);
    tape.next_call().unwrap();
    let port: u32 = asked(&mut tape, "a.size", &json!({})).unwrap();
    let (name, args) = create(port);
    assert!(matches!(
        ask(&mut tape, name, args, Value::Null),
        Err(TapeError::Diverged)
    ));
    assert!(
        matches!(
            ask(&mut tape, "a.size", json!({}), Value::Null),
            Err(TapeError::Diverged)
        ),
        "and so do all later ones"
    );
    assert!(matches!(tape.end_call(&result(1)), Err(TapeError::Diverged)));
    assert!(matches!(tape.replay_outcome(), Some(Outcome::Diverged { n: 3, .. })));
}

#[test]
fn an_answer_of_another_type_diverges_at_its_entry() {
    let mut tape = Tape::replay(segment(&RECORDED), DIGEST);
    tape.next_call().unwrap();
    let answer = asked::<u32>(&mut tape, "api.get", &get().1);
    assert!(matches!(answer, Err(TapeError::Diverged)));
    let told = tape.replay_outcome().unwrap().to_string();
    assert!(
        told.starts_with("diverged at entry 2: `api.get`\n  the recorded answer can't be given: invalid type"),
        "{told}"
    );
}

#[test]
fn a_question_after_the_recorded_end_was_never_recorded() {
    check(
        &[CALL, GET, r#"{"n":3,"result":{"Ok":{"created":1}}}"#],
        &[get(), create(80)],
        result(1),
        "asked something never recorded at entry 3\n  asked: api.create {\"specs\":[{\"Bind\":{\"port\":80}}]}",
    );
}

#[test]
fn questions_that_were_not_asked_are_unused() {
    let told = "1 entry unused from entry 3 on";
    check(&RECORDED, &[get()], result(1), told);
    let told = "2 entries unused from entry 2 on\n  result.Ok.created: recorded 1, replayed 0";
    check(&RECORDED, &[], result(0), told);
    let started = r#"{"n":1,"ask":"log.write","args":{},"answer":null}"#;
    let mut tape = Tape::replay(
        segment(&[started, r#"{"n":2,"at_ms":0,"call":"a.b","args":{}}"#]),
        DIGEST,
    );
    assert!(tape.next_call().is_none(), "`init` asked once in the recording");
    assert_eq!(tape.replay_outcome(), unused(1, 1));
}

#[test]
fn calls_that_the_host_never_made_are_unused() {
    let second = [
        CALL,
        GET,
        CREATE,
        RESULT,
        r#"{"n":5,"at_ms":0,"call":"a.b","args":{}}"#,
        r#"{"n":6,"result":null}"#,
    ];
    let mut tape = Tape::replay(segment(&second), DIGEST);
    assert_eq!(tape.replay_outcome(), unused(1, 6));
    tape.next_call().unwrap();
    for (name, args) in [get(), create(80)] {
        ask(&mut tape, name, args, Value::Null).unwrap();
    }
    tape.end_call(&result(1)).unwrap();
    assert_eq!(tape.replay_outcome(), unused(5, 2));
    assert_eq!(tape.next_call().map(|(n, _)| n), Some(5));
    tape.end_call(&Ending::result(&()).unwrap()).unwrap();
    assert_eq!(tape.replay_outcome(), Some(identical(2, 7)));
}

#[test]
fn a_recording_that_ends_inside_a_call_is_replayed_as_far_as_it_goes() {
    let told = "identical as far as recorded: 1 call, 3 entries; the recording ends inside `r.reconcile` (entry 1)";
    let on = [get(), create(80)];
    check(&[CALL, GET], &on, result(1), told);
    let (_, stopped) = replay(segment(&[CALL, GET]), DIGEST, &on, result(1));
    assert!(matches!(stopped, Some(TapeError::Ended)));
    check(&[CALL, GET], &[get()], result(1), told);
    check(&[CALL, GET], &[], result(1), "1 entry unused from entry 2 on");
    check(
        &[CALL, r#"{"n":2,"ask":"api.get","args":{"refs":["x"],"deep":true}}"#],
        &on,
        result(1),
        told,
    );
}

#[test]
fn a_call_that_was_cut_short_is_replayed_as_far_as_it_went() {
    for (ending, why) in [
        (
            r#"{"n":3,"deadline":"10 s"}"#,
            "`r.reconcile` was ended by its deadline at entry 3: 10 s",
        ),
        (
            r#"{"n":3,"memory":"64 MiB"}"#,
            "`r.reconcile` was ended by its memory limit at entry 3: 64 MiB",
        ),
        (
            r#"{"n":3,"cancelled":"stop"}"#,
            "`r.reconcile` was cancelled at entry 3: stop",
        ),
    ] {
        let told = format!("identical as far as recorded: 1 call, 4 entries; {why}");
        check(&[CALL, GET, ending], &[get(), create(80)], result(1), &told);
        for another in [result(1), Ending::Trap("another end".into())] {
            check(&[CALL, GET, ending], &[get()], another, &told);
        }
        check(&[CALL, GET, ending], &[], result(1), "1 entry unused from entry 2 on");
    }
    let sleeping = [
        CALL,
        r#"{"n":2,"ask":"clock.sleep-ms","args":{"ms":5}}"#,
        r#"{"n":3,"cancelled":"stop"}"#,
    ];
    check(
        &sleeping,
        &[("clock.sleep-ms", json!({"ms": 5}))],
        result(1),
        "identical as far as recorded: 1 call, 4 entries; `r.reconcile` was cancelled at entry 3: stop",
    );
}

#[test]
fn a_call_that_the_host_refused_to_answer_ends_as_recorded() {
    let recording = [
        CALL,
        r#"{"n":2,"ask":"api.get","args":{"refs":["x"],"deep":true}}"#,
        r#"{"n":3,"trap":"too large"}"#,
    ];
    let asks = [get(), create(80)];
    check(&recording, &asks, result(1), "identical: 1 call, 4 entries");
    let (_, stopped) = replay(segment(&recording), DIGEST, &asks, result(1));
    assert!(matches!(stopped, Some(TapeError::Ended)));
}

#[test]
fn a_trap_is_compared_by_its_text_where_the_guest_is_the_recorded_one() {
    let recording = [CALL, r#"{"n":2,"trap":"overflow at plan.rs"}"#];
    let trap = || Ending::Trap("overflow at act.rs".into());
    check(
        &recording,
        &[],
        trap(),
        "diverged at entry 2: `r.reconcile`\n  recorded: trap \"overflow at plan.rs\"\n  replayed: trap \"overflow at act.rs\"",
    );
    let (outcome, _) = replay(segment(&recording), "sha256:bb", &[], trap());
    assert_eq!(outcome, identical(1, 3));
    let (outcome, _) = replay(segment(&recording), "sha256:bb", &[], result(1));
    assert!(matches!(outcome, Outcome::Diverged { n: 2, .. }));
}

#[test]
fn an_outcome_is_told_in_json_too() {
    let (outcome, _) = replay(segment(&RECORDED), DIGEST, &[get(), create(81)], result(1));
    assert_eq!(
        serde_json::to_value(&outcome).unwrap(),
        json!({
            "outcome": "diverged", "n": 3,
            "divergence": {"kind": "args", "ask": "api.create", "differences": [
                {"path": "args.specs[0].Bind.port", "recorded": {"value": 80}, "replayed": {"value": 81}}
            ]}
        })
    );
}

/// Makes calls with these numbers of questions; the `changed`-th question has another argument.
fn perform(tape: &mut Tape, counts: &[usize], changed: Option<usize>, begin: bool) {
    let mut asked = 0;
    for count in counts {
        if begin {
            tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
        } else if tape.next_call().is_none() {
            return;
        }
        for _ in 0..*count {
            let args = json!({"at": asked, "changed": changed == Some(asked)});
            if ask(tape, "api.get", args, json!({"Ok": asked})).is_err() {
                break;
            }
            asked += 1;
        }
        if tape.end_call(&Ending::result(count).unwrap()).is_err() {
            return;
        }
    }
}

proptest! {
    #[test]
    fn a_replay_is_identical_twice_and_diverges_at_the_changed_question(
        counts in prop::collection::vec(0_usize..5, 1..5),
        changed in 0_usize..20,
    ) {
        let mut recorded = Tape::memory();
        perform(&mut recorded, &counts, None, true);
        let lines: Vec<String> = recorded.take_entries().iter().map(crate::Entry::to_line).collect();
        let recording = segment(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for _ in 0..2 {
            let mut tape = Tape::replay(recording.clone(), DIGEST);
            perform(&mut tape, &counts, None, false);
            prop_assert!(tape.next_call().is_none());
            prop_assert_eq!(tape.replay_outcome(), Some(identical(counts.len() as u64, lines.len() as u64 + 1)));
        }
        let mut tape = Tape::replay(recording.clone(), DIGEST);
        perform(&mut tape, &counts, Some(changed), false);
        let at = recording.entries.iter().filter(|entry| matches!(entry.event, crate::Event::Ask(_))).nth(changed);
        match (at, tape.replay_outcome()) {
            (Some(entry), Some(Outcome::Diverged { n, .. })) => prop_assert_eq!(n, entry.n),
            (None, Some(outcome)) => prop_assert!(outcome.is_identical()),
            (_, outcome) => prop_assert!(false, "{outcome:?}"),
        }
    }
}

#[test]
fn a_replay_goes_on_with_what_is_recorded_meanwhile_and_counts_anew() {
    let lines = |lines: &[&str]| segment(lines).entries;
    let mut tape = Tape::replay(segment(&[]), DIGEST);
    let call = |tape: &mut Tape, port: u32| {
        tape.next_call().unwrap();
        let (name, args) = create(port);
        let answer = asked::<Value>(tape, name, &args);
        let _ = tape.end_call(&answer.map_or(Ending::Trap("stopped".into()), |_| result(1)));
        tape.replay_outcome().unwrap().one_line()
    };
    let recorded = || {
        lines(&[
            CALL,
            r#"{"n":2,"ask":"api.create","args":{"specs":[{"Bind":{"port":80}}]},"answer":{"Ok":"bind-1"}}"#,
            r#"{"n":3,"result":{"Ok":{"created":1}}}"#,
        ])
    };
    for _ in 0..2 {
        tape.feed(recorded()).unwrap();
        assert!(
            matches!(tape.feed(recorded()), Err(TapeError::Misplaced(_))),
            "not used up yet"
        );
        assert_eq!(call(&mut tape, 80), "identical: 1 call, 3 entries");
    }
    tape.feed(recorded()).unwrap();
    assert_eq!(
        call(&mut tape, 81),
        "diverged at entry 2: `api.create`: args.specs[0].Bind.port: recorded 80, replayed 81"
    );
    assert!(
        matches!(tape.feed(recorded()), Err(TapeError::Misplaced(_))),
        "it went another way"
    );
    assert!(matches!(Tape::memory().feed(recorded()), Err(TapeError::Misplaced(_))));
}

#[test]
fn of_several_differences_one_line_names_the_first_and_counts_the_rest() {
    let (outcome, _) = replay(
        segment(&[CALL, r#"{"n":2,"result":{"Ok":{"a":1,"b":1}}}"#]),
        DIGEST,
        &[],
        Ending::result(&json!({"Ok": {"a": 2, "b": 2}})).unwrap(),
    );
    assert_eq!(
        outcome.one_line(),
        "diverged at entry 2: `r.reconcile`: result.Ok.a: recorded 1, replayed 2, and 1 more"
    );
}

#[test]
fn a_trap_that_an_older_host_recorded_is_the_same_one() {
    let same = |recorded: &str, replayed: &str| {
        let trap = json!({"n": 2, "trap": recorded}).to_string();
        let lines = [CALL, &trap];
        let ending = Ending::Trap(replayed.to_owned());
        replay(segment(&lines), DIGEST, &[], ending).0.is_identical()
    };
    let old =
        "guest `g@1` in `r.reconcile`: trapped: `unreachable` (a panic, or an abort) (at std::panicking::x <- g::f)";
    let new = "guest `g@1` in `r.reconcile`: trapped: panicked at src/lib.rs:3:1: no server (at g::f)";
    assert!(same(old, new) && same(new, new) && same(old, old));
    assert!(same(
        new,
        "guest `lbaas@1` in `r.reconcile`: trapped: panicked at src/lib.rs:3:1: no server (at h)"
    ));
    assert!(!same(new, &new.replace("no server", "no port")));
    assert!(!same(
        old,
        "guest `g@1` in `r.status`: trapped: panicked at src/lib.rs:3:1: no server"
    ));
    assert!(!same(
        old,
        "guest `g@1` in `r.reconcile`: trapped: wasm trap: call stack exhausted (at g::f)"
    ));
}
