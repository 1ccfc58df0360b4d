//! The tape while it records, keeps in memory, or does nothing.

use std::collections::BTreeMap;
use std::future::{Future, pending, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ask, begun, call, header, lines_of, raw, refused};
use crate::{Ending, Entry, Options, Tape, TapeError};

/// Has no JSON form: its keys are lists.
fn unwritable() -> BTreeMap<Vec<u8>, u8> {
    BTreeMap::from([(vec![1], 1)])
}

fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn off_passes_on_and_serialises_nothing() {
    let mut tape = Tape::off();
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    assert_eq!(tape.ask_now("a.b", &unwritable(), || Ok(5)).unwrap(), 5);
    assert!(
        matches!(tape.ask_now("a.b", &1, refused), Err(TapeError::Refused(text)) if text == "the answer is too large")
    );
    tape.end_call(&Ending::Trap("x".into())).unwrap();
    assert!(tape.next_call().is_none() && tape.replay_outcome().is_none() && tape.take_entries().is_empty());
}

#[test]
fn the_future_of_a_question_can_move_between_threads() {
    let mut tape = Tape::memory();
    let args = json!({});
    let asked = is_send(tape.call("a.b", &args, || ready(Ok(7))));
    assert!(matches!(poll(asked), Poll::Ready(Ok(7))));
    assert_eq!(
        tape.take_entries().iter().map(Entry::to_line).collect::<Vec<_>>(),
        [r#"{"n":1,"ask":"a.b","args":{},"answer":7}"#]
    );
}

#[test]
fn memory_keeps_what_a_file_would_hold() {
    let dir = TempDir::new().unwrap();
    let mut recorded = begun(dir.path(), Options::default());
    let mut kept = Tape::memory();
    for tape in [&mut recorded, &mut kept] {
        call(tape, 2);
        call(tape, 0);
    }
    let entries: Vec<String> = kept.take_entries().iter().map(Entry::to_line).collect();
    assert_eq!(entries, lines_of(&dir.path().join("0.jsonl"))[1..]);
    assert!(kept.take_entries().is_empty());
    call(&mut kept, 0);
    assert_eq!(kept.take_entries().first().map(|entry| entry.n), Some(7));
    ask(&mut kept, "log.write", json!({}), Value::Null).unwrap();
    kept.rotate(&header(None)).unwrap();
    assert_eq!(kept.take_entries().len(), 2);
}

#[test]
fn a_question_that_was_waited_for_in_vain_is_recorded_without_an_answer() {
    let mut tape = Tape::memory();
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    let args = json!({"ms": 5});
    let waiting = tape.call("clock.sleep-ms", &args, pending::<Result<(), TapeError>>);
    assert!(poll(waiting).is_pending());
    tape.end_call(&Ending::Cancelled("newer input".into())).unwrap();
    let lines: Vec<String> = tape.take_entries().iter().map(Entry::to_line).collect();
    assert_eq!(
        lines[1..],
        [
            r#"{"n":2,"ask":"clock.sleep-ms","args":{"ms":5}}"#,
            r#"{"n":3,"cancelled":"newer input"}"#
        ]
    );
}

#[test]
fn after_a_question_without_an_answer_nothing_follows_but_a_failed_ending() {
    let mut tape = Tape::memory();
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    assert!(matches!(
        tape.ask_now("api.get", &1, refused),
        Err(TapeError::Refused(_))
    ));
    assert!(matches!(
        ask(&mut tape, "api.get", json!(2), json!(2)),
        Err(TapeError::Misplaced(_))
    ));
    assert!(matches!(
        tape.end_call(&Ending::result(&1).unwrap()),
        Err(TapeError::Misplaced(_))
    ));
    tape.end_call(&Ending::Trap("the answer is too large".into())).unwrap();
    assert_eq!(tape.take_entries().len(), 3);
}

#[test]
fn what_has_no_json_form_is_an_error_and_leaves_the_journal_whole() {
    let dir = TempDir::new().unwrap();
    let mut tape = begun(dir.path(), Options::default());
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    let mut asked = false;
    let question = tape.ask_now("api.get", &unwritable(), || {
        asked = true;
        Ok(1)
    });
    assert!(matches!(question, Err(TapeError::Unwritable { name, .. }) if name == "api.get"));
    assert!(!asked);
    let answer = tape.ask_now("api.get", &json!({}), || Ok(Unwritable(unwritable())));
    assert!(matches!(answer, Err(TapeError::Unwritable { .. })));
    tape.end_call(&Ending::Trap("unwritable".into())).unwrap();
    assert_eq!(
        lines_of(&dir.path().join("0.jsonl"))[2..],
        [r#"{"n":2,"ask":"api.get","args":{}}"#, r#"{"n":3,"trap":"unwritable"}"#]
    );
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Unwritable(BTreeMap<Vec<u8>, u8>);

#[test]
fn a_tape_used_out_of_order_says_so() {
    let dir = TempDir::new().unwrap();
    let mut tape = begun(dir.path(), Options::default());
    assert!(tape.end_call(&Ending::Trap("x".into())).is_err(), "no call was begun");
    call(&mut tape, 0);
    assert!(
        ask(&mut tape, "a.b", json!(1), json!(1)).is_err(),
        "between two calls there is no question"
    );
    tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
    assert!(
        tape.begin_call(0, "a.b", &raw(&json!({}))).is_err(),
        "one call at a time"
    );
    tape.end_call(&Ending::result(&1).unwrap()).unwrap();
    assert_eq!(
        lines_of(&dir.path().join("0.jsonl")).len(),
        5,
        "what was refused left no trace"
    );
    assert_eq!(tape.journal().map(|journal| journal.next_n()), Some(5));
}
