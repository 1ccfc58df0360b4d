//! Writing and reading segments: lines are read back to the byte, torn ends, damage, rotation, retention.

use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{any_value, ask, begun, call, gapless, header, header_line, lines_of, open, raw, refused, written};
use crate::{
    Ending, Entry, Files, Journal, JournalError, Opened, Options, ReadError, Segment, Tape, TapeError, segment_files,
};

#[test]
fn lines_are_written_exactly_as_the_contract_has_them() {
    let dir = TempDir::new().unwrap();
    let Opened {
        mut journal,
        newest,
        torn,
    } = open(&dir, Options::default());
    assert!(newest.is_none() && torn.is_none());
    journal.start_segment(&header(Some("{\"v\":1}"))).unwrap();
    let mut tape = Tape::record(journal);
    tape.begin_call(0, "reconciliation.reconcile", &raw(&json!({})))
        .unwrap();
    ask(&mut tape, "api.list-tagged", json!({}), json!({"Ok": []})).unwrap();
    ask(&mut tape, "log.write", json!({"text": "x"}), Value::Null).unwrap();
    tape.end_call(&Ending::result(&json!({"Ok": {}})).unwrap()).unwrap();
    for ending in [
        Ending::result(&()).unwrap(),
        Ending::Trap("a \"b\"\nc".into()),
        Ending::Deadline("10 s".into()),
        Ending::Memory("64 MiB".into()),
        Ending::Cancelled("newer input".into()),
    ] {
        tape.begin_call(7, "a.b", &raw(&json!({}))).unwrap();
        tape.end_call(&ending).unwrap();
    }
    tape.begin_call(8, "a.b", &raw(&json!({}))).unwrap();
    assert!(matches!(
        tape.ask_now("api.get", &json!({"x": 1}), refused),
        Err(TapeError::Refused(_))
    ));
    assert_eq!(
        lines_of(&dir.path().join("0.jsonl")),
        [
            r#"{"n":0,"header":{"format":1,"guest":"lbaas","version":"1","digest":"sha256:aa","world":"trueup:lbaas/lbaas-reconciler@0.1.0","host":"0.1.0","settings":{},"limits":{"memory":1},"snapshot":"{\"v\":1}"}}"#,
            r#"{"n":1,"at_ms":0,"call":"reconciliation.reconcile","args":{}}"#,
            r#"{"n":2,"ask":"api.list-tagged","args":{},"answer":{"Ok":[]}}"#,
            r#"{"n":3,"ask":"log.write","args":{"text":"x"},"answer":null}"#,
            r#"{"n":4,"result":{"Ok":{}}}"#,
            r#"{"n":5,"at_ms":7,"call":"a.b","args":{}}"#,
            r#"{"n":6,"result":null}"#,
            r#"{"n":7,"at_ms":7,"call":"a.b","args":{}}"#,
            r#"{"n":8,"trap":"a \"b\"\nc"}"#,
            r#"{"n":9,"at_ms":7,"call":"a.b","args":{}}"#,
            r#"{"n":10,"deadline":"10 s"}"#,
            r#"{"n":11,"at_ms":7,"call":"a.b","args":{}}"#,
            r#"{"n":12,"memory":"64 MiB"}"#,
            r#"{"n":13,"at_ms":7,"call":"a.b","args":{}}"#,
            r#"{"n":14,"cancelled":"newer input"}"#,
            r#"{"n":15,"at_ms":8,"call":"a.b","args":{}}"#,
            r#"{"n":16,"ask":"api.get","args":{"x":1}}"#,
        ]
    );
}

#[test]
fn raw_values_with_line_breaks_become_one_line() {
    let dir = TempDir::new().unwrap();
    let mut tape = begun(dir.path(), Options::default());
    let args: Box<serde_json::value::RawValue> =
        serde_json::from_str("{\n  \"a b\": \"c \\\" d\",\r\n\t\"e\": [1.50, 2]\n}").unwrap();
    tape.begin_call(0, "a.b", &args).unwrap();
    assert_eq!(
        lines_of(&dir.path().join("0.jsonl"))[1],
        r#"{"n":1,"at_ms":0,"call":"a.b","args":{"a b":"c \" d","e":[1.50,2]}}"#
    );
}

#[test]
fn what_is_no_entry_is_refused_with_a_reason() {
    for (line, reason) in [
        ("", "not a JSON object"),
        ("[1]", "not a JSON object"),
        (r#"{"n":1}"#, "make up no entry"),
        (r#"{"n":1,"result":null"#, "column 20"),
        (r#"{"n":1,"result":null}x"#, "trailing characters"),
        (r#"{"n":-1,"result":null}"#, "-1"),
        (r#"{"result":null}"#, "missing field `n`"),
        (r#"{"n":1,"result":null,"more":1}"#, "unknown field `more`"),
        (r#"{"n":1,"n":1,"result":null}"#, "duplicate field `n`"),
        (r#"{"n":1,"result":null,"trap":"x"}"#, "more than one ending"),
        (r#"{"n":1,"result":null,"trap":null}"#, "null"),
        (r#"{"n":1,"result":null,"args":{}}"#, "make up no entry"),
        (r#"{"n":1,"result":null,"about":"a/b"}"#, "go with `call` alone"),
        (r#"{"n":1,"trap":5}"#, "expected a string"),
        (r#"{"n":1,"call":"a.b","args":{}}"#, "make up no entry"),
        (r#"{"n":1,"at_ms":0,"call":"a.b"}"#, "make up no entry"),
        (
            r#"{"n":1,"at_ms":0,"call":"a.b","args":{},"answer":1}"#,
            "make up no entry",
        ),
        (r#"{"n":1,"ask":"a.b","answer":1}"#, "make up no entry"),
        (r#"{"n":1,"at_ms":0,"ask":"a.b","args":{}}"#, "make up no entry"),
        (r#"{"n":1,"header":{"format":1}}"#, "`header`: missing field `guest`"),
        (r#"{"n":1,"header":[1]}"#, "`header` is not a JSON object"),
        (
            r#"{"n":1,"header":{"format":2,"new":1}}"#,
            "written in format 2, and this trueup reads format 1",
        ),
    ] {
        let error = Entry::parse(line).expect_err(line);
        assert!(error.contains(reason) && !error.contains(" line "), "{line}: {error}");
    }
}

#[test]
fn an_entry_in_the_wrong_place_is_damage() {
    let header = header_line();
    let call = r#"{"n":1,"at_ms":0,"call":"a.b","args":{}}"#;
    let started = r#"{"n":1,"ask":"a.b","args":{}}"#;
    for (lines, line, reason) in [
        (vec![call], 1, "must be its header"),
        (
            vec![&header, &header.replace("\"n\":0", "\"n\":1")],
            2,
            "a header inside a segment",
        ),
        (
            vec![&header, r#"{"n":1,"result":null}"#],
            2,
            "an ending outside any call",
        ),
        (
            vec![&header, call, r#"{"n":2,"at_ms":0,"call":"a.b","args":{}}"#],
            3,
            "a call inside a call",
        ),
        (
            vec![
                &header,
                call,
                r#"{"n":2,"trap":"x"}"#,
                r#"{"n":3,"ask":"a.b","args":{},"answer":1}"#,
            ],
            4,
            "outside any call",
        ),
        (
            vec![
                &header,
                call,
                r#"{"n":2,"ask":"a.b","args":{}}"#,
                r#"{"n":3,"result":1}"#,
            ],
            4,
            "a result after",
        ),
        (
            vec![
                &header,
                call,
                r#"{"n":2,"ask":"a.b","args":{}}"#,
                r#"{"n":3,"ask":"a.b","args":{}}"#,
            ],
            4,
            "a question after",
        ),
        (
            vec![&header, started, r#"{"n":2,"at_ms":0,"call":"a.b","args":{}}"#],
            3,
            "an entry after",
        ),
        (
            vec![&header, call, r#"{"n":3,"result":1}"#],
            3,
            "entry 3 is where entry 2 belongs",
        ),
    ] {
        let text = lines.join("\n") + "\n";
        match Segment::from_bytes("-", text.as_bytes()).expect_err(reason) {
            ReadError::Damaged {
                file,
                line: at,
                reason: told,
            } => {
                assert_eq!((file.as_str(), at), ("-", line), "{told}");
                assert!(told.contains(reason), "{told}");
            }
            other => panic!("{reason}: {other}"),
        }
    }
}

#[test]
fn a_segment_cut_at_any_byte_keeps_the_rest_and_continues_without_gap() {
    let (_dir, path) = written();
    let whole = fs::read(&path).unwrap();
    let lines = lines_of(&path);
    for cut in 0..whole.len() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("0.jsonl");
        fs::write(&file, &whole[..cut]).unwrap();
        let complete = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        let tail = cut
            - whole[..cut]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);

        let read = Segment::read(&file);
        assert_eq!(fs::read(&file).unwrap(), &whole[..cut], "reading changes nothing");
        if complete == 0 {
            match read.expect_err("a header is missing") {
                ReadError::Empty { torn, .. } => assert_eq!(torn.map_or(0, |torn| torn.bytes), tail as u64),
                other => panic!("{other}"),
            }
        } else {
            let segment = read.unwrap();
            let entries: Vec<String> = segment.entries.iter().map(Entry::to_line).collect();
            assert_eq!(entries, lines[1..complete]);
            let torn = segment.torn.map(|torn| (torn.file, torn.line, torn.bytes));
            let expected = (tail > 0).then(|| (file.display().to_string(), complete as u64 + 1, tail as u64));
            assert_eq!(torn, expected);
        }

        let Opened {
            mut journal,
            newest,
            torn,
        } = open(&dir, Options::default());
        assert_eq!(torn.map_or(0, |torn| torn.bytes), tail as u64);
        assert_eq!(journal.next_n(), complete as u64);
        if newest.is_some_and(|segment| segment.can_go_on()) {
            journal.continue_segment().unwrap();
        } else {
            assert!(matches!(journal.continue_segment(), Err(JournalError::Misplaced(_))));
            journal.start_segment(&header(Some("{}"))).unwrap();
        }
        let mut tape = Tape::record(journal);
        call(&mut tape, 1);

        let numbers = gapless(dir.path());
        assert!(numbers.start == 0 && numbers.end >= complete as u64 + 3);
    }
}

#[test]
fn any_byte_that_is_no_text_is_damage_in_its_line() {
    let (dir, path) = written();
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x80;
        if String::from_utf8(flipped.clone()).is_ok() {
            continue;
        }
        let line = 1 + whole[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
        match Segment::from_bytes("j", &flipped) {
            Ok(segment) => {
                assert_eq!(
                    at,
                    whole.len() - 1,
                    "only the very last newline can make a torn line of a damaged one"
                );
                assert_eq!(segment.torn.map(|torn| torn.line), Some(line));
            }
            Err(ReadError::Damaged { file, line: told, .. }) => assert_eq!((file.as_str(), told), ("j", line)),
            Err(other) => panic!("{other}"),
        }
    }
    fs::write(&path, &whole[1..]).unwrap();
    let error = Journal::open(dir.path(), Options::default(), &Files::default())
        .expect_err("damaged")
        .to_string();
    assert!(error.contains("0.jsonl` line 1 is damaged: "), "{error}");
}

#[test]
fn a_removed_or_repeated_line_is_damage_where_the_number_jumps() {
    let (_dir, path) = written();
    let lines = lines_of(&path);
    for at in 0..lines.len() - 1 {
        let mut removed = lines.clone();
        removed.remove(at);
        let mut repeated = lines.clone();
        repeated.insert(at, lines[at].clone());
        for (text, line) in [(removed, at + 1), (repeated, at + 2)] {
            let error = Segment::from_bytes("j", (text.join("\n") + "\n").as_bytes())
                .expect_err("damaged")
                .to_string();
            assert!(error.starts_with(&format!("`j` line {line} is damaged: ")), "{error}");
        }
    }
}

#[test]
fn a_last_line_that_is_complete_and_invalid_is_damage_not_torn() {
    let (_dir, path) = written();
    let mut whole = fs::read(&path).unwrap();
    whole.extend_from_slice(b"{\"n\":\n");
    assert!(matches!(
        Segment::from_bytes("j", &whole),
        Err(ReadError::Damaged { .. })
    ));
}

#[test]
fn a_torn_header_gives_way_to_the_segment_before() {
    let (dir, path) = written();
    let next_n = Segment::read(&path).unwrap().next_n();
    let torn_file = dir.path().join(format!("{next_n}.jsonl"));
    fs::write(&torn_file, b"{\"n\":9,\"hea").unwrap();
    fs::write(dir.path().join("07.jsonl"), b"not a segment's name").unwrap();
    let Opened {
        mut journal,
        newest,
        torn,
    } = open(&dir, Options::default());
    assert_eq!(newest.map(|segment| segment.first), Some(0));
    assert_eq!(
        torn.map(|torn| (torn.file, torn.bytes)),
        Some((torn_file.display().to_string(), 11))
    );
    assert_eq!(journal.next_n(), next_n);
    journal.start_segment(&header(None)).unwrap();
    assert_eq!(journal.segment_path(), Some(torn_file.as_path()));
}

#[test]
fn a_torn_end_behind_a_link_is_not_cut_off() {
    let (dir, path) = written();
    let elsewhere = TempDir::new().unwrap();
    let target = elsewhere.path().join("target");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"n\":9,\"ca");
    fs::write(&target, &bytes).unwrap();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    let refused = Journal::open(dir.path(), Options::default(), &Files::default()).map(drop);
    assert!(matches!(refused, Err(JournalError::Io { .. })));
    assert_eq!(fs::read(&target).unwrap(), bytes);
}

#[test]
fn entries_lost_before_an_empty_newest_segment_leave_no_damage() {
    // A power failure: the end of the first file never reached the disk, and the second has only a name.
    let (dir, path) = written();
    let ends_at = Segment::read(&path).unwrap().next_n();
    let lost_file = dir.path().join(format!("{}.jsonl", ends_at + 10));
    fs::write(&lost_file, b"").unwrap();
    let mut journal = open(&dir, Options::default()).journal;
    assert!(!journal.can_continue());
    assert!(matches!(journal.continue_segment(), Err(JournalError::Misplaced(_))));
    journal.start_segment(&header(None)).unwrap();
    let mut tape = Tape::record(journal);
    call(&mut tape, 1);
    drop(tape);
    let newest = open(&dir, Options::default()).newest.unwrap();
    assert_eq!((newest.first, newest.entries.len()), (ends_at + 10, 3));

    fs::write(&lost_file, b"").unwrap();
    let mut journal = open(&dir, Options::default()).journal;
    journal.roll_back(3).unwrap();
    journal.start_segment(&header(None)).unwrap();
    let rolled_back = Segment::read(&path).expect("it can be read").entries.pop();
    assert_eq!(rolled_back.map(|entry| entry.n), Some(ends_at));
    assert_eq!(open(&dir, Options::default()).newest.unwrap().first, ends_at + 11);
}

#[test]
fn an_old_segment_that_can_not_be_removed_does_not_stop_the_journal() {
    let dir = TempDir::new().unwrap();
    // A folder in its place can't be removed as a file, whatever the user's rights.
    let stuck = dir.path().join("0.jsonl");
    fs::create_dir(&stuck).unwrap();
    fs::write(
        dir.path().join("1.jsonl"),
        header_line().replace("\"n\":0", "\"n\":1") + "\n",
    )
    .unwrap();
    let options = Options {
        keep_bytes: 0,
        ..Options::default()
    };
    let mut journal = open(&dir, options).journal;
    journal.start_segment(&header(None)).expect("the new segment was begun");
    let mut tape = Tape::record(journal);
    call(&mut tape, 1);
    tape.rotate(&header(None)).unwrap();
    assert_eq!(segment_files(dir.path()).unwrap().len(), 2, "the others go");
    fs::remove_dir(&stuck).unwrap();
    fs::write(&stuck, b"").unwrap();
    tape.rotate(&header(None)).unwrap();
    assert_eq!(segment_files(dir.path()).unwrap().len(), 1, "it tries again");
}

#[test]
fn a_file_named_for_another_entry_is_damage() {
    let (dir, path) = written();
    fs::rename(path, dir.path().join("7.jsonl")).unwrap();
    let error = Journal::open(dir.path(), Options::default(), &Files::default())
        .expect_err("damaged")
        .to_string();
    assert!(error.contains("entry 0 begins a file named for entry 7"), "{error}");
}

#[derive(Debug, Clone)]
struct Script {
    name: String,
    args: Value,
    asks: Vec<(String, Value, Value)>,
    ending: Ending,
}

fn script() -> impl Strategy<Value = Script> {
    let ending = prop_oneof![
        4 => any_value().prop_map(|value| Ending::Result(raw(&value))),
        1 => "\\PC{0,8}".prop_map(Ending::Trap),
        1 => "\\PC{0,8}".prop_map(Ending::Deadline),
        1 => "\\PC{0,8}".prop_map(Ending::Memory),
        1 => "\\PC{0,8}".prop_map(Ending::Cancelled),
    ];
    let asks = prop::collection::vec(("[a-z.\"]{1,6}", any_value(), any_value()), 0..4);
    ("[a-z.-]{1,6}", any_value(), asks, ending).prop_map(|(name, args, asks, ending)| Script {
        name,
        args,
        asks,
        ending,
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_to_the_byte(scripts in prop::collection::vec(script(), 0..6), segment_entries in 1_u64..12) {
        let dir = TempDir::new().unwrap();
        let mut tape = begun(dir.path(), Options { segment_entries, ..Options::default() });
        let mut told = Vec::new();
        for script in &scripts {
            tape.begin_call(3, &script.name, &raw(&script.args)).unwrap();
            told.push(json!({"at_ms": 3, "call": script.name, "args": script.args}));
            for (name, args, answer) in &script.asks {
                prop_assert_eq!(&ask(&mut tape, name, args.clone(), answer.clone()).unwrap(), answer);
                told.push(json!({"ask": name, "args": args, "answer": answer}));
            }
            tape.end_call(&script.ending).unwrap();
            told.push(match &script.ending {
                Ending::Result(value) => json!({"result": value}),
                Ending::Trap(text) => json!({"trap": text}),
                Ending::Deadline(text) => json!({"deadline": text}),
                Ending::Memory(text) => json!({"memory": text}),
                Ending::Cancelled(text) => json!({"cancelled": text}),
            });
            if tape.wants_rotation() {
                tape.rotate(&header(Some("{}"))).unwrap();
            }
        }
        let mut read = Vec::new();
        let mut expected_n = 0;
        for file in segment_files(dir.path()).unwrap() {
            let segment = Segment::read(&file.path).unwrap();
            let mut lines = lines_of(&file.path).into_iter().skip(1);
            prop_assert_eq!(segment.first, expected_n);
            for entry in &segment.entries {
                let line = entry.to_line();
                prop_assert_eq!(Some(line.clone()), lines.next());
                let mut value: Value = serde_json::from_str(&line).unwrap();
                value.as_object_mut().unwrap().remove("n");
                read.push(value);
            }
            expected_n = segment.next_n();
        }
        prop_assert_eq!(read, told);
    }

    #[test]
    fn reading_anything_at_all_gives_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Segment::from_bytes("j", &bytes);
        let with_header = [header_line().as_bytes(), b"\n", &bytes].concat();
        if let Ok(segment) = Segment::from_bytes("j", &with_header) {
            prop_assert!(segment.torn.is_some() || bytes.is_empty());
        }
    }
}

#[test]
fn a_segment_that_no_file_held_is_written_as_one_and_read_back() {
    let (_dir, path) = written();
    let read = Segment::read(&path).unwrap();
    let entries = read.entries.iter().skip(1).cloned().collect();
    let made = Segment::of("made", 41, header(Some("7")), entries).unwrap();
    let mut file = Vec::new();
    made.write(&mut file).unwrap();
    let back = Segment::from_bytes("back", &file).unwrap();
    assert_eq!((back.first, back.next_n()), (41, 42 + 7));
    assert_eq!(back.header.snapshot.as_deref(), Some("7"));
    assert!(back.can_go_on() && made.can_go_on());
    // A result outside a call.
    let entries = read.entries.iter().skip(3).take(1).cloned().collect();
    let error = Segment::of("made", 0, header(None), entries).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`made` line 2 is damaged: an ending outside any call"
    );
}
