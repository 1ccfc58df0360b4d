//! Calls that a kill cut short: run again, they do what they did, under the same names, and nothing else.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ask, header, raw};
use crate::{Ending, Files, Interrupted, Journal, Opened, Options, Segment, Tape};

/// Asked anew in each run: scheduled timers end with their process.
fn anew(name: &str) -> bool {
    name.starts_with("timers.")
}

/// The name of an action: the time of the call, the number of the question within it.
type Name = (u64, u32);

/// The guest's world, which outlives every process. It repeats no action with the same name.
#[derive(Default)]
struct World {
    now_ms: u64,
    done: BTreeMap<Name, (Value, u64)>,
}

impl World {
    fn clock(&mut self) -> u64 {
        self.now_ms += 1;
        self.now_ms
    }

    /// The number of the operation.
    fn start(&mut self, name: Name, what: &Value) -> u64 {
        let next = self.done.len() as u64 + 1;
        let (done, number) = self.done.entry(name).or_insert((what.clone(), next));
        assert_eq!(done, what, "another thing under the same name");
        *number
    }
}

/// The number of steps until the process is killed. A question that changes something takes two, since the kill may
/// come between its effect and the line that records it.
struct Process {
    steps_left: usize,
}

struct Killed;

impl Process {
    fn step(&mut self) -> Result<(), Killed> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(Killed)?;
        Ok(())
    }
}

/// The state of the guest: the operations that it knows, in order. Its questions in a call depend on them and on the
/// clock.
type State = Vec<u64>;

const CALLS: u64 = 4;

/// One call, from its first question to its result; each question is a step.
fn run(tape: &mut Tape, state: &mut State, at_ms: u64, world: &mut World, process: &mut Process) -> Result<(), Killed> {
    let mut number = 0;
    for round in 0..3 {
        number += 1;
        let now_ms: u64 = tape.ask_now("clock.now-ms", &json!({}), || Ok(world.clock())).unwrap();
        process.step()?;
        number += 1;
        ask(
            tape,
            "timers.schedule",
            json!({"delay_ms": now_ms}),
            json!(process.steps_left),
        )
        .unwrap();
        process.step()?;
        number += 1;
        let what = json!({"round": round, "at": now_ms, "knows": state});
        let name = (at_ms, number);
        if process.steps_left == 0 {
            // It is done, but no line records it.
            world.start(name, &what);
            return Err(Killed);
        }
        process.step()?;
        let operation = tape
            .ask_now("api.attach", &what, || Ok(world.start(name, &what)))
            .unwrap();
        process.step()?;
        state.push(operation);
    }
    Ok(())
}

/// The state after the completed calls of a segment, which the host repeats.
fn state_after(segment: &Segment) -> State {
    let last = |text: &str| serde_json::from_str::<State>(text).unwrap();
    let mut state = last(segment.header.snapshot.as_deref().unwrap());
    for entry in &segment.entries {
        if let crate::Event::Ending(Ending::Result(result)) = &entry.event {
            state = last(result.get());
        }
    }
    state
}

fn call(
    tape: &mut Tape,
    state: &mut State,
    at_ms: u64,
    world: &mut World,
    process: &mut Process,
) -> Result<(), Killed> {
    tape.begin_call(at_ms, "syncer.sync", &raw(&json!({}))).unwrap();
    process.step()?;
    run(tape, state, at_ms, world, process)?;
    tape.end_call(&Ending::result(&*state).unwrap()).unwrap();
    process.step()
}

/// One process: finishes the interrupted call, then makes the remaining calls of three operations each.
fn process(dir: &Path, world: &mut World, process: &mut Process) -> Result<State, Killed> {
    let options = Options {
        keep_bytes: 0,
        segment_entries: 20,
        ..Options::default()
    };
    let Opened {
        mut journal, newest, ..
    } = Journal::open(dir, options, &Files::default()).unwrap();
    let interrupted = Interrupted::find(dir, newest.as_ref(), anew).unwrap();
    let mut state = newest.as_ref().map(state_after).unwrap_or_default();
    if let Some(interrupted) = &interrupted {
        interrupted.keep(dir).unwrap();
        process.step()?;
    }
    let last_ms = newest.as_ref().and_then(Segment::last_call_at_ms);
    journal.start_segment(&header(Some(&json!(state).to_string()))).unwrap();
    let mut tape = Tape::record(journal);
    process.step()?;
    if let Some(interrupted) = interrupted {
        assert!(last_ms.is_none_or(|last_ms| last_ms <= interrupted.at_ms));
        tape.give_again(interrupted.answers, anew).unwrap();
        call(&mut tape, &mut state, interrupted.at_ms, world, process)?;
        let again = tape.given_again().unwrap();
        assert_eq!((again.left, again.differs), (0, None));
        Interrupted::forget(dir).unwrap();
        process.step()?;
    }
    while (state.len() as u64) < 3 * CALLS {
        if tape.wants_rotation() {
            tape.rotate(&header(Some(&json!(state).to_string()))).unwrap();
            process.step()?;
        }
        let at_ms = world.clock();
        call(&mut tape, &mut state, at_ms, world, process)?;
    }
    Ok(state)
}

/// Kills a process after each of these numbers of steps, then lets one complete.
fn check(kills: &[usize]) {
    let dir = TempDir::new().unwrap();
    let mut world = World::default();
    let mut ended = None;
    for steps_left in kills.iter().copied().chain([usize::MAX]) {
        if let Ok(state) = process(dir.path(), &mut world, &mut Process { steps_left }) {
            ended = Some(state);
            break;
        }
    }
    let started: Vec<u64> = world.done.values().map(|(_, number)| *number).collect();
    assert_eq!(
        started.len() as u64,
        3 * CALLS,
        "one operation for each that the guest wanted: {:?}",
        world.done
    );
    assert_eq!(ended.unwrap(), started, "the guest knows all of them, and no other");
}

#[test]
fn a_call_killed_anywhere_repeats_its_actions_under_the_same_names() {
    // More steps than all calls take.
    for steps in 0..80 {
        check(&[steps]);
    }
}

proptest! {
    #[test]
    fn so_it_does_however_often_it_is_killed_also_while_it_is_run_again(kills in prop::collection::vec(0..30_usize, 0..12)) {
        check(&kills);
    }
}

#[test]
fn a_call_that_asks_something_else_is_answered_live_from_there_on() {
    let dir = TempDir::new().unwrap();
    let recorded = super::segment(&[
        r#"{"n":1,"at_ms":5,"call":"syncer.sync","args":{}}"#,
        r#"{"n":2,"ask":"clock.now-ms","args":{},"answer":7}"#,
        r#"{"n":3,"ask":"timers.schedule","args":{"delay_ms":1},"answer":9}"#,
        r#"{"n":4,"ask":"api.list","args":{"name":"a","zone":"z"},"answer":[1]}"#,
        r#"{"n":5,"ask":"api.list","args":{"name":"b","zone":"z"},"answer":[2]}"#,
    ]);
    let interrupted = recorded.interrupted().unwrap();
    assert_eq!(
        (interrupted.at_ms, interrupted.call.as_str(), interrupted.answers.len()),
        (5, "syncer.sync", 4)
    );
    let mut tape = super::begun(dir.path(), Options::default());
    assert_eq!(tape.given_again(), None);
    tape.give_again(interrupted.answers, anew).unwrap();
    tape.begin_call(5, "syncer.sync", &interrupted.args).unwrap();
    let mut asked = |name, args| ask(&mut tape, name, args, json!("live")).unwrap();
    assert_eq!(asked("timers.schedule", json!({"delay_ms": 1})), "live");
    assert_eq!(asked("clock.now-ms", json!({})), 7);
    assert_eq!(
        asked("api.list", json!({"zone": "z", "name": "a"})),
        json!([1]),
        "the order of keys says nothing"
    );
    assert_eq!(asked("api.list", json!({"name": "c", "zone": "z"})), "live");
    assert_eq!(
        asked("api.list", json!({"name": "b", "zone": "z"})),
        "live",
        "its facts may have changed"
    );
    let again = tape.given_again().unwrap();
    let (recorded, asked) = again.differs.unwrap();
    assert_eq!((again.given, again.left), (2, 1));
    assert_eq!((recorded.args.contains('b'), asked.args.contains('c')), (true, true));
}

#[test]
fn the_saved_call_counts_until_it_ended_and_the_longer_record_wins() {
    let dir = TempDir::new().unwrap();
    let begin = r#"{"n":1,"at_ms":5,"call":"syncer.sync","args":{}}"#;
    let [first, second] = [2, 3].map(|n| format!(r#"{{"n":{n},"ask":"api.list","args":{{"at":{n}}},"answer":{n}}}"#));
    let find = |segment: Option<&Segment>| Interrupted::find(dir.path(), segment, anew).unwrap();
    let found = |segment: &Segment| find(Some(segment)).map(|it| it.answers.len());
    let long = super::segment(&[begin, &first, &second]);
    assert_eq!(found(&long), Some(2));
    find(Some(&long)).unwrap().keep(dir.path()).unwrap();
    assert_eq!(
        find(None).map(|it| it.answers.len()),
        Some(2),
        "killed before another segment began"
    );
    assert_eq!(found(&super::segment(&[])), Some(2), "and after its header");
    assert_eq!(found(&super::segment(&[begin, &first])), Some(2), "and inside it again");
    let other = first.replace("list", "ensure");
    assert_eq!(found(&super::segment(&[begin, &other])), Some(1), "it went another way");
    let ended = super::segment(&[begin, &first, r#"{"n":3,"trap":"it trapped"}"#]);
    assert_eq!(found(&ended), None, "it ended, and was not forgotten");
    assert_eq!(
        found(&super::segment(&[])),
        None,
        "from there on it is, whatever segment comes next"
    );
    find(Some(&long)).unwrap().keep(dir.path()).unwrap();
    let later = super::segment(&[r#"{"n":1,"at_ms":6,"call":"syncer.sync","args":{}}"#]);
    assert_eq!(found(&later), Some(0), "another call");
    assert_eq!(found(&super::segment(&[])), None, "came after it had ended");
    Interrupted::forget(dir.path()).unwrap();
    std::fs::write(dir.path().join("interrupted.json"), "{").unwrap();
    let error = Interrupted::find(dir.path(), None, anew).unwrap_err().to_string();
    assert!(
        error.contains("interrupted.json") && error.contains("is damaged"),
        "{error}"
    );
}

#[test]
fn a_saved_call_is_written_as_it_was_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("interrupted.json");
    let answers = r#"[{"ask":"log.write","args":{"a": 1},"answer":null},{"ask":"b.c","args":{},"answer":{"Ok":1.50}}]"#;
    let text = format!(r#"{{"at_ms":5,"call":"syncer.sync","args":{{}},"answers":{answers}}}"#);
    std::fs::write(&path, &text).unwrap();
    let saved = Interrupted::find(dir.path(), None, anew).unwrap().unwrap();
    saved.keep(dir.path()).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    std::fs::write(&path, text.replace(r#","answer":null"#, "")).unwrap();
    let error = Interrupted::find(dir.path(), None, anew).unwrap_err().to_string();
    assert!(error.contains("missing field `answer`"), "{error}");
}
