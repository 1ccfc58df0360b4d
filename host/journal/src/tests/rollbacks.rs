//! Rollbacks: an entry at the end of a segment that says which entries remain valid.

use serde_json::json;
use tempfile::TempDir;

use super::replays::{asked, identical};
use super::{begun, call, gapless, header, lines_of, open, raw, segment};
use crate::{Ending, Entry, Event, JournalError, Options, Segment, Tape};

const CALL: &str = r#"{"n":1,"at_ms":9,"call":"a.b","args":{}}"#;
const ASK: &str = r#"{"n":2,"ask":"c.d","args":{},"answer":1}"#;
const RESULT: &str = r#"{"n":3,"result":null}"#;
const LATER: &str = r#"{"n":4,"at_ms":9,"call":"a.b","args":{}}"#;
const LATER_RESULT: &str = r#"{"n":5,"result":null}"#;

fn rolled_back(n: u64, stands: u64) -> String {
    format!(r#"{{"n":{n},"rolled-back":{stands}}}"#)
}

/// The entry numbers from which an instance is rebuilt.
fn standing(segment: Segment) -> Vec<u64> {
    let segment = segment.without_failed_calls();
    segment.entries.iter().map(|entry| entry.n).collect()
}

#[test]
fn it_is_written_behind_whatever_stands_there_and_a_new_segment_follows() {
    for (last_ending, expected_n) in [(None, 8), (Some(Ending::Trap("x".into())), 9)] {
        let dir = TempDir::new().unwrap();
        let mut tape = begun(dir.path(), Options::default());
        call(&mut tape, 1);
        call(&mut tape, 1);
        tape.begin_call(0, "a.b", &raw(&json!({}))).unwrap();
        if let Some(ending) = &last_ending {
            tape.end_call(ending).unwrap();
        }
        drop(tape);

        let mut journal = open(&dir, Options::default()).journal;
        journal.roll_back(3).unwrap();
        assert!(journal.wants_rotation());
        assert!(matches!(journal.roll_back(3), Err(JournalError::Misplaced(_))));
        journal.start_segment(&header(None)).unwrap();
        assert_eq!(
            lines_of(&dir.path().join("0.jsonl")).last(),
            Some(&rolled_back(expected_n, 3))
        );
        assert_eq!(gapless(dir.path()), 0..expected_n + 2);
        let old = Segment::read(&dir.path().join("0.jsonl")).unwrap();
        assert!(!old.can_go_on() && !old.ends_inside_call() && old.snapshot_is_valid());
        assert_eq!(standing(old), [1, 2, 3]);
    }
}

#[test]
fn a_journal_without_a_segment_has_nothing_to_roll_back() {
    let dir = TempDir::new().unwrap();
    let mut journal = open(&dir, Options::default()).journal;
    assert!(matches!(journal.roll_back(0), Err(JournalError::Misplaced(_))));
    journal.start_segment(&header(None)).unwrap();
    journal.roll_back(0).unwrap();
    assert!(
        open(&dir, Options::default()).journal.continue_segment().is_err(),
        "nothing goes on behind a rollback"
    );
}

#[test]
fn what_it_takes_back_is_no_part_of_the_state_and_no_call_stands_by_half() {
    let recording = |stands| segment(&[CALL, ASK, RESULT, LATER, LATER_RESULT, &rolled_back(6, stands)]);
    for (stands, left) in [
        (5, vec![1, 2, 3, 4, 5]),
        (4, vec![1, 2, 3]),
        (3, vec![1, 2, 3]),
        (2, vec![]),
        (0, vec![]),
    ] {
        assert!(recording(stands).snapshot_is_valid(), "{stands}");
        assert_eq!(standing(recording(stands)), left, "{stands}");
    }
    let text = format!(
        "{}\n{}\n",
        super::header_line().replacen("\"n\":0", "\"n\":7", 1),
        rolled_back(8, 6)
    );
    let beyond = Segment::from_bytes("test.jsonl", text.as_bytes()).unwrap();
    assert!(!beyond.snapshot_is_valid());
}

#[test]
fn a_replay_passes_over_it() {
    let mut tape = Tape::replay(segment(&[CALL, ASK, RESULT, &rolled_back(4, 0)]), "");
    tape.next_call().unwrap();
    let _: u32 = asked(&mut tape, "c.d", &json!({})).unwrap();
    tape.end_call(&Ending::result(&()).unwrap()).unwrap();
    assert!(tape.next_call().is_none());
    assert_eq!(tape.replay_outcome(), Some(identical(1, 5)));

    let mut tape = Tape::replay(segment(&[&rolled_back(1, 0)]), "");
    assert!(tape.next_call().is_none());
    assert_eq!(tape.replay_outcome(), Some(identical(0, 2)));
}

#[test]
fn its_line_is_read_and_written_alike_and_nothing_may_follow_it() {
    let line = rolled_back(9, 7);
    let entry = Entry::parse(&line).unwrap();
    assert!(matches!(entry.event, Event::RolledBack(7)));
    assert_eq!(entry.to_line(), line);
    for wrong in [
        r#"{"n":1,"rolled-back":-1}"#,
        r#"{"n":1,"rolled-back":null}"#,
        r#"{"n":1,"rolled-back":1,"result":null}"#,
        r#"{"n":1,"rolled_back":1}"#,
    ] {
        assert!(Entry::parse(wrong).is_err(), "{wrong}");
    }
    let text = [super::header_line(), rolled_back(1, 0), CALL.replacen('1', "2", 1)].join("\n") + "\n";
    let error = Segment::from_bytes("test.jsonl", text.as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`test.jsonl` line 3 is damaged: an entry after a rollback (entry 2)"
    );
}
