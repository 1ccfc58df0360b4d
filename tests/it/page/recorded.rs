//! Recordings for the page: one of a real run, and longer ones derived from it through the journal's own types.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::LazyLock;

use serde_json::value::RawValue;
use trueup_journal::{Ask, Call, Ending, Entry, Event, Segment};

use support::{Engine, Site};

/// The recording of one Service from two runs of the quickstart.
pub(crate) static RECORDED: LazyLock<Segment> = LazyLock::new(|| {
    let engine = Engine::start(&["--settle-ms", "50"]);
    let site = Site::against(&engine);
    site.run_once().exits(0);
    site.run_once().exits(0);
    Segment::read(&site.journals()[0]).unwrap()
});

/// One in this many decisions ends differently.
const TROUBLE_EVERY: usize = 17;

/// Repeats the recording's decisions, each time later, until there are this many entries; now and then one ends badly.
pub(crate) fn multiplied(entries: usize) -> Segment {
    let recorded = &*RECORDED;
    let first_at = recorded.entries.iter().find_map(|entry| match &entry.event {
        Event::Call(call) => Some(call.at_ms),
        _ => None,
    });
    let mut made = Vec::with_capacity(entries);
    let (mut round, mut calls) = (0_u64, 0);
    while made.len() < entries {
        for entry in &recorded.entries {
            let mut event = entry.event.clone();
            match &mut event {
                Event::Call(call) => call.at_ms += round * 61_000 + (round % 7) * 1_300,
                Event::Ending(ending) => {
                    calls += 1;
                    if calls % TROUBLE_EVERY == 0 {
                        *ending = trouble(calls / TROUBLE_EVERY);
                    }
                }
                _ => {}
            }
            made.push(Entry { n: 0, event });
        }
        round += 1;
    }
    assert!(first_at.is_some() && calls > 0);
    Segment::of("made", 0, recorded.header.clone(), made).unwrap()
}

fn trouble(at: usize) -> Ending {
    match at % 5 {
        0 => Ending::Trap("guest `lbaas@1` in `reconciliation.reconcile`: wasm trap: unreachable".to_owned()),
        1 => Ending::Result(raw(
            r#"{"Err":{"Refused":"the Engine refused: quota of 20 backends is used up"}}"#,
        )),
        2 => Ending::Deadline("computed for longer than 10000 ms".to_owned()),
        3 => Ending::Memory("wanted more than 268435456 bytes".to_owned()),
        _ => Ending::Cancelled("ended while it slept: the host stops, or there is a newer input".to_owned()),
    }
}

/// A recording of these calls, each with one question, with the recorded header.
pub(crate) fn of_calls(calls: &[(&str, &str, &str)]) -> Segment {
    let entry = |event| Entry { n: 0, event };
    let entries = calls.iter().zip(0_u64..).flat_map(|((args, answer, result), at)| {
        let call = Call {
            at_ms: 1_795_261_727_000 + at * 1000,
            name: "reconciliation.reconcile".to_owned(),
            args: raw(args),
            by: None,
            about: None,
        };
        let ask = Ask {
            name: "api.list-tagged".to_owned(),
            args: raw(r#"{"tag":"t"}"#),
            answer: Some(raw(answer)),
        };
        [
            entry(Event::Call(call)),
            entry(Event::Ask(ask)),
            entry(Event::Ending(Ending::Result(raw(result)))),
        ]
    });
    Segment::of("made", 0, RECORDED.header.clone(), entries.collect()).unwrap()
}

pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// Writes a recording to a file, and returns its size in bytes.
pub(crate) fn write(segment: &Segment, file: &Path) -> u64 {
    let mut to = BufWriter::new(File::create(file).unwrap());
    segment.write(&mut to).unwrap();
    to.flush().unwrap();
    std::fs::metadata(file).unwrap().len()
}
