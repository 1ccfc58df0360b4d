//! Tests of the crate as its users see it: written data is read, replayed and compared.

mod accepted;
mod decisions;
mod interrupted;
mod journals;
mod replays;
mod rollbacks;
mod segments;
mod tapes;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    Ending, Entry, Event, FORMAT, Files, Header, Journal, Opened, Options, Segment, Tape, TapeError, segment_files,
};

pub(crate) const DIGEST: &str = "sha256:aa";

pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

/// Any JSON: texts with every character that a line must escape, and keys that often are the same.
pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "\\PC{0,8}|[\n\r\"\\\\]{0,4}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]|\\PC{0,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        ]
    })
}

pub(crate) fn header(snapshot: Option<&str>) -> Header {
    Header {
        format: FORMAT,
        guest: "lbaas".into(),
        version: "1".into(),
        digest: DIGEST.into(),
        world: "trueup:lbaas/lbaas-reconciler@0.1.0".into(),
        host: "0.1.0".into(),
        settings: raw(&json!({})),
        limits: raw(&json!({"memory": 1})),
        snapshot: snapshot.map(str::to_owned),
    }
}

/// A journal with default options and a started segment.
pub(crate) fn begun(dir: &Path, options: Options) -> Tape {
    let Opened { mut journal, .. } = Journal::open(dir, options, &Files::default()).unwrap();
    journal.start_segment(&header(None)).unwrap();
    Tape::record(journal)
}

impl Tape {
    /// Begins a call of the host's own.
    pub(crate) fn begin_call(&mut self, at_ms: u64, name: &str, args: &RawValue) -> Result<(), TapeError> {
        self.begin_call_by(at_ms, name, args, (None, None))
    }
}

pub(crate) fn ask(tape: &mut Tape, name: &str, args: Value, answer: Value) -> Result<Value, TapeError> {
    tape.ask_now(name, &args, || Ok(answer))
}

/// One call with `asks` questions and a result.
pub(crate) fn call(tape: &mut Tape, asks: u32) {
    tape.begin_call(5, "reconciliation.reconcile", &raw(&json!({"deep": true})))
        .unwrap();
    for at in 0..asks {
        let answer = json!({"Ok": [at, "text \u{e4}\n"]});
        assert_eq!(ask(tape, "api.get", json!({"at": at}), answer.clone()).unwrap(), answer);
    }
    tape.end_call(&Ending::result(&json!({"Ok": asks})).unwrap()).unwrap();
}

pub(crate) fn refused() -> Result<Value, TapeError> {
    Err(TapeError::Refused("the answer is too large".into()))
}

/// A segment of these lines after a header that is entry 0.
pub(crate) fn segment(lines: &[&str]) -> Segment {
    let mut text = header_line() + "\n";
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    Segment::from_bytes("test.jsonl", text.as_bytes()).unwrap()
}

pub(crate) fn header_line() -> String {
    Entry {
        n: 0,
        event: Event::Header(Box::new(header(None))),
    }
    .to_line()
}

pub(crate) fn lines_of(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

pub(crate) fn open(dir: &TempDir, options: Options) -> Opened {
    Journal::open(dir.path(), options, &Files::default()).unwrap()
}

/// A segment with two calls, as its file.
pub(crate) fn written() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let mut tape = begun(dir.path(), Options::default());
    ask(&mut tape, "log.write", json!({"text": "starting"}), Value::Null).unwrap();
    call(&mut tape, 1);
    call(&mut tape, 2);
    let path = dir.path().join("0.jsonl");
    (dir, path)
}

/// The numbers of all entries in a journal. Each segment must be whole and follow the previous one.
pub(crate) fn gapless(dir: &Path) -> Range<u64> {
    let files = segment_files(dir).unwrap();
    let start = files[0].first;
    let end = files.iter().fold(start, |expected, file| {
        let segment = Segment::read(&file.path).unwrap();
        assert_eq!((file.first, segment.first, &segment.torn), (expected, expected, &None));
        segment.next_n()
    });
    start..end
}
