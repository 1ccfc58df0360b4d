//! Splits the entries of the tape's tap into calls.

use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use trueup_journal::{Entry, Event};

use super::setup::Observed;

/// One call for the candidate to make, or a new beginning of its instance, or both.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) key: String,
    /// Set if the active instance began anew, or its state is known.
    pub(super) begin: Option<Begin>,
    /// The call, its requests and its ending. Empty if there is only a beginning.
    pub(super) call: Vec<Entry>,
    pub(super) took: Duration,
}

/// Where an instance begins.
#[derive(Debug)]
pub(super) struct Begin {
    pub(super) snapshot: String,
    /// The requests of `init` and `restore`. `None` if they were not observed.
    pub(super) start: Option<Vec<Entry>>,
    /// Whether the requests were made with this state. Otherwise with an earlier one.
    pub(super) is_seen: bool,
    /// The settings of the active instance at its beginning. `None` if they are unknown.
    pub(super) settings: Option<Box<RawValue>>,
    /// Timers that wait there if its beginning was not observed: when each is due, and its id.
    pub(super) timers: Vec<(u64, u64)>,
}

impl Job {
    /// Whether the active instance is gone after this call.
    pub(super) fn ends_instance(&self) -> bool {
        matches!(self.call.last().map(|entry| &entry.event), Some(Event::Ending(ending)) if ending.failed())
    }

    pub(super) fn bytes(&self) -> usize {
        let begin = self.begin.as_ref();
        begin.map_or(0, |begin| {
            begin.snapshot.len() + begin.start.as_deref().map_or(0, bytes_of)
        }) + bytes_of(&self.call)
    }
}

/// The approximate memory size of entries.
pub(super) fn bytes_of(entries: &[Entry]) -> usize {
    let text = |entry: &Entry| match &entry.event {
        Event::Header(header) => header.snapshot.as_ref().map_or(0, String::len),
        Event::Call(call) => call.name.len() + call.args.get().len(),
        Event::Ask(ask) => {
            let answer = ask.answer.as_ref().map_or(0, |answer| answer.get().len());
            ask.name.len() + ask.args.get().len() + answer
        }
        Event::Ending(trueup_journal::Ending::Result(result)) => result.get().len(),
        Event::Ending(_) | Event::RolledBack(_) => 0,
    };
    entries.iter().map(|entry| size_of::<Entry>() + text(entry)).sum()
}

/// The calls in what was observed. `None` if they can't be separated: a call without an ending, a beginning without a
/// state.
pub(super) fn split(observed: Observed) -> Option<Vec<Job>> {
    let (key, took) = (observed.key, observed.took);
    let settings = observed.settings.and_then(|settings| to_raw_value(&settings).ok());
    let mut jobs = Vec::new();
    let mut begin = observed.state.map(|snapshot| Begin {
        snapshot,
        start: None,
        is_seen: false,
        settings,
        timers: observed.timers,
    });
    let mut call = Vec::new();
    for entry in observed.entries {
        match &entry.event {
            Event::Header(header) if call.is_empty() => {
                begin = Some(Begin {
                    snapshot: header.snapshot.clone()?,
                    start: Some(Vec::new()),
                    is_seen: true,
                    settings: Some(header.settings.clone()),
                    timers: Vec::new(),
                });
            }
            Event::Call(_) if call.is_empty() => call.push(entry),
            Event::Ask(_) if call.is_empty() => begin.as_mut()?.start.get_or_insert_default().push(entry),
            Event::Ask(_) => call.push(entry),
            Event::Ending(_) if !call.is_empty() => {
                call.push(entry);
                jobs.push(Job {
                    key: key.clone(),
                    begin: begin.take(),
                    call: std::mem::take(&mut call),
                    took,
                });
            }
            _ => return None,
        }
    }
    if !call.is_empty() {
        return None;
    }
    if begin.is_some() && !jobs.is_empty() {
        jobs.push(Job { key, begin, call, took });
    }
    // A state alone means that a call was too long to be kept.
    (!jobs.is_empty()).then_some(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of these lines. `header` means one with the snapshot `rotated`.
    fn entries(lines: &[&str]) -> Vec<Entry> {
        let header = r#"{"n":0,"header":{"format":1,"guest":"g","version":"1","digest":"d","world":"w","host":"h","settings":{},"limits":{},"snapshot":"rotated"}}"#;
        let parse = |line: &&str| Entry::parse(if *line == "header" { header } else { line }).unwrap();
        lines.iter().map(parse).collect()
    }

    const CALL: &str = r#"{"n":1,"at_ms":9,"call":"r.f","args":{}}"#;
    const ASK: &str = r#"{"n":2,"ask":"a.b","args":{},"answer":1}"#;
    const RESULT: &str = r#"{"n":3,"result":1}"#;
    const TRAP: &str = r#"{"n":3,"trap":"x"}"#;

    /// A job as its beginning's snapshot, the number of requests of that beginning, the number of the call's entries,
    /// and whether it ends the instance.
    type JobShape<'a> = (Option<&'a str>, usize, usize, bool);

    #[track_caller]
    fn check(state: Option<&str>, lines: &[&str], expected: Option<&[JobShape<'_>]>) {
        let jobs = split(Observed {
            key: "k".into(),
            digest: trueup_engine::Digest::of(b"g"),
            state: state.map(str::to_owned),
            settings: None,
            timers: Vec::new(),
            entries: entries(lines),
            took: Duration::ZERO,
        });
        let found = jobs.as_ref().map(|jobs| {
            let one = |job: &Job| {
                let begin = job.begin.as_ref();
                let start = begin.and_then(|begin| begin.start.as_ref()).map_or(0, Vec::len);
                (
                    begin.map(|begin| begin.snapshot.clone()),
                    start,
                    job.call.len(),
                    job.ends_instance(),
                )
            };
            jobs.iter().map(one).collect::<Vec<_>>()
        });
        let expected = expected.map(|jobs| {
            let owned =
                |(snapshot, start, call, ends): &JobShape<'_>| (snapshot.map(str::to_owned), *start, *call, *ends);
            jobs.iter().map(owned).collect::<Vec<_>>()
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn each_call_is_a_job_and_a_beginning_goes_to_the_call_after_it() {
        check(None, &[CALL, ASK, RESULT], Some(&[(None, 0, 3, false)]));
        check(Some("s"), &[CALL, TRAP], Some(&[(Some("s"), 0, 2, true)]));
        check(
            None,
            &["header", ASK, CALL, RESULT, CALL, ASK, RESULT],
            Some(&[(Some("rotated"), 1, 2, false), (None, 0, 3, false)]),
        );
        check(
            None,
            &[CALL, RESULT, "header", ASK],
            Some(&[(None, 0, 2, false), (Some("rotated"), 1, 0, false)]),
        );
    }

    #[test]
    fn what_is_no_whole_call_is_not_compared() {
        check(None, &[], None);
        check(Some("s"), &[], None);
        check(None, &[CALL, ASK], None);
        check(None, &[ASK, CALL, RESULT], None);
        check(None, &[RESULT], None);
        check(None, &[CALL, CALL, RESULT], None);
    }
}
