//! The candidate's instance of one key, and what it is compared with.
//!
//! The instance lives from call to call: beginning one for each call takes five times as long (0.8 ms against 0.17 ms
//! for a service of two ports, unoptimised, on two cores).

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use trueup_base::clock::VirtualClock;
use trueup_base::regular;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::reading::parsed;
use trueup_capabilities::timers::Timers;
use trueup_capabilities::{Backends, Host};
use trueup_engine::Digest;
use trueup_instance::replay::{self, Cpu, Options, ReplayError};
use trueup_instance::{Instance, Instances, REPLAY_GUARD, Start, with_causes};
use trueup_journal::{
    Ask, Entry, Event, Header, Outcome, Scan, Segment, Tape, first_asks, segment_numbers, segment_path,
};

use super::{Difference, Job, Setup, Verdict};

/// How much longer a candidate's call may take than the active guest's in wall-clock time, up to `cpu_ms`. A slow
/// candidate is then soon reported as a difference, and the calls behind it are compared too. A call takes
/// milliseconds; a second leaves room for a busy machine.
pub const CPU_MORE_MAX: Duration = Duration::from_secs(1);

/// The maximum bytes that are read at once: the calls of a service of 100 ports x 100 servers take 10 MiB. The shadow
/// passes over a longer call, so that the host need not hold it.
const LINES_BYTES_MAX: usize = 16 << 20;

/// A segment that is longer is not kept from call to call: 64 keys have one each.
const KEPT_BYTES_MAX: u64 = 2 << 20;

/// The candidate's settings, plus those that the active instance has and the configuration does not: an adapter gave
/// them to this key.
fn with_own(candidate: &Value, active: &Value, begun: &RawValue) -> Option<Box<RawValue>> {
    let (Value::Object(candidate), Value::Object(active)) = (candidate, active) else {
        return None;
    };
    let mut settings = candidate.clone();
    let begun: Map<String, Value> = serde_json::from_str(begun.get()).ok()?;
    let is_own = |name: &String| !active.contains_key(name) && !candidate.contains_key(name);
    settings.extend(begun.into_iter().filter(|(name, _)| is_own(name)));
    to_raw_value(&settings).ok()
}

/// The candidate's instance of one key.
pub(super) struct CandidateInstance {
    /// The recording of the active instance.
    pub(super) reading: Reading,
    /// The last known state. `None` if that is the beginning of the segment.
    begin: Option<Begin>,
    /// `None` if it must begin.
    instance: Option<Instance>,
    /// The entry that must follow for the instance to go on.
    next_n: u64,
}

/// Where an instance begins, inside a segment.
struct Begin {
    /// The entry of its first call.
    n: u64,
    /// The active instance's state before it.
    snapshot: String,
    /// What `init` and `restore` ask with this state.
    start: Vec<Entry>,
}

/// How a call compares: `None` if it is the same. An error, in one line: it could not be compared.
pub(super) type Judged = Result<Option<Difference>, String>;

impl CandidateInstance {
    /// Reads the recording in `folder` up to the call with entry `n`. Goes on with `before` if its segment has that
    /// call.
    ///
    /// # Errors
    /// One line: why it can't be read.
    pub(super) fn at(folder: &Path, n: u64, before: Option<Self>, versions: &Setup) -> Result<Self, String> {
        let parts = |it: Self| (it.reading, (it.begin, it.instance, it.next_n));
        let (before, state) = before.map(parts).unzip();
        let first = before.as_ref().map(|before| before.first);
        let reading = Reading::of(folder, n, before, &versions.active.program.guest.digest)?;
        let (begin, instance, next_n) = state.filter(|_| first == Some(reading.first)).unwrap_or_default();
        Ok(Self {
            reading,
            begin,
            instance: instance.filter(|_| next_n == n),
            next_n,
        })
    }

    /// Has the candidate make the call, with the recorded answers, and compares the result.
    pub(super) async fn call(&mut self, versions: &Setup, job: &Job) -> Judged {
        let place = self.reading.call(job.n);
        let place = place.ok_or_else(|| format!("entry {} is no whole call", job.n))?;
        let call = self.reading.entries.get(place).unwrap_or_default().to_vec();
        let ending = call.last().map_or(job.n, |entry| entry.n);
        let mut instance = match self.instance.take() {
            Some(mut instance) => {
                let fed = instance.host_mut().tape.feed(call.clone());
                fed.map_err(|error| error.to_string())?;
                instance
            }
            None => match self.start(versions, job).await? {
                Ok(instance) => instance,
                Err(difference) => return Ok(difference),
            },
        };
        let cpu_ms = Duration::from_millis(versions.candidate.limits.cpu_ms);
        let time = cpu_ms.min(job.took.saturating_add(CPU_MORE_MAX));
        // A busy guest yields at every epoch, so the timeout takes effect.
        let outcome = match tokio::time::timeout(time, replay::go_on(&mut instance)).await {
            Ok(Ok(outcome)) => outcome.unwrap_or_else(|| replay::outcome(instance.host())),
            Ok(Err(error)) => return not_started(job, &error),
            Err(_) => return no_answer(job, &call, time),
        };
        if outcome.is_identical() && instance.is_usable() {
            self.instance = Some(instance);
            self.next_n = ending + 1;
        }
        Ok(judged(job, &outcome))
    }

    /// Begins the candidate's instance from the active one's state before the call.
    async fn start(&mut self, versions: &Setup, job: &Job) -> Result<Result<Instance, Option<Difference>>, String> {
        self.catch_up(versions, job.n).await?;
        let options = Options {
            compare: versions.compare,
            cpu: Cpu::AsRecorded,
            ..Options::default()
        };
        let Instances { engine, program, .. } = &versions.candidate;
        match replay::begin(engine, program, self.recording_of(job.n, versions)?, options).await {
            Ok(begun) => Ok(begun.map_err(|outcome| judged(job, &outcome))),
            Err(error) => not_started(job, &error).map(Err),
        }
    }

    /// Finds out the active instance's state before the call with entry `n`, by repeating its calls since the last
    /// known state.
    ///
    /// # Errors
    /// One line: why they can't be repeated.
    async fn catch_up(&mut self, versions: &Setup, n: u64) -> Result<(), String> {
        let (first, header, entries) = self.since_known_state(n);
        let Some(begun_ms) = entries.iter().find_map(at_ms) else {
            return Ok(());
        };
        let active = &versions.active;
        let timers = waiting(begun_ms, entries.clone());
        let segment = Segment::of("shadow", first, header.clone(), entries).map_err(|error| error.to_string())?;
        let cpu_max = Duration::from_millis(active.limits.cpu_ms);
        let snapshot = replay::state_after(&active.engine, &active.program, segment, cpu_max, None).await;
        let snapshot = snapshot.map_err(|error| error.to_string())?;
        let start = match active.program.has_timers() {
            // It schedules them anew when it begins.
            true => {
                let snapshot = Some(snapshot.clone());
                let now_ms = self.reading.entries.iter().find(|entry| entry.n == n).and_then(at_ms);
                let header = Header { snapshot, ..header };
                let asked = asked(active, &header, now_ms.unwrap_or(begun_ms), &timers).await;
                asked.ok_or("the active guest asks more at its beginning than can be answered here")?
            }
            false => first_asks(&self.reading.entries).to_vec(),
        };
        self.begin = Some(Begin { n, snapshot, start });
        Ok(())
    }

    /// Everything from the last known state on, with the call of entry `n` as the last. With it, a replay by the
    /// candidate shows the same again.
    ///
    /// # Errors
    /// One line: why there is no such recording.
    pub(super) fn recording_of(&self, n: u64, versions: &Setup) -> Result<Segment, String> {
        let Setup { active, candidate, .. } = versions;
        let call = self.reading.call(n).unwrap_or_default().len() as u64;
        let (first, mut header, entries) = self.since_known_state(n + call);
        let json = |error: serde_json::Error| error.to_string();
        header.limits = to_raw_value(&candidate.limits).map_err(json)?;
        if active.settings != candidate.settings {
            let with_own = with_own(&candidate.settings, &active.settings, &header.settings);
            header.settings = with_own.map_or_else(|| to_raw_value(&candidate.settings).map_err(json), Ok)?;
        }
        if candidate.afresh {
            header.snapshot = None;
        }
        Segment::of("shadow", first, header, entries).map_err(|error| error.to_string())
    }

    /// The active instance's recording from the last known state on, before entry `end`: the number of its header, the
    /// header, and the entries.
    fn since_known_state(&self, end: u64) -> (u64, Header, Vec<Entry>) {
        let mut header = self.reading.header.clone();
        let (mut first, mut from, mut start) = (self.reading.first, 0, [].as_slice());
        if let Some(begin) = &self.begin {
            // The calls keep the journal's numbers. The requests of the beginning get those before.
            first = begin.n.saturating_sub(begin.start.len() as u64 + 1);
            (from, start) = (begin.n, &begin.start);
            header.snapshot = Some(begin.snapshot.clone());
        }
        let calls = self.reading.entries.iter().filter(|it| (from..end).contains(&it.n));
        (first, header, start.iter().chain(calls).cloned().collect())
    }
}

/// When a call began. `None` for another entry.
fn at_ms(entry: &Entry) -> Option<u64> {
    entry.call().map(|call| call.at_ms)
}

fn no_answer(job: &Job, call: &[Entry], time: Duration) -> Judged {
    let begun = call.first().and_then(Entry::call);
    let (begun, ending) = begun.zip(call.last()).ok_or("no call")?;
    let n = ending.n;
    let name = &begun.name;
    let took = job.took.as_millis();
    let time = time.as_millis();
    let replayed = format!("recorded an ending after {took} ms, replayed no answer within {time} ms");
    let what = format!("diverged at entry {n}: `{name}`: {replayed}");
    Ok(Some(job.difference(Verdict::Different, Some(n), what)))
}

fn not_started(job: &Job, error: &ReplayError) -> Judged {
    match error.no_room() {
        // It could be instantiated at its beginning. That there is no room for it now is not its fault.
        Some(text) => Err(text.to_owned()),
        None => Ok(Some(job.difference(Verdict::Different, None, error.to_string()))),
    }
}

fn judged(job: &Job, outcome: &Outcome) -> Option<Difference> {
    let verdict = match outcome {
        Outcome::Identical { .. } | Outcome::IdenticalAsFarAsRecorded { .. } => return None,
        Outcome::AskedUnrecorded { .. } => Verdict::Unrecorded,
        Outcome::Diverged { .. } | Outcome::Unused { .. } => Verdict::Different,
    };
    Some(job.difference(verdict, outcome.diverged_at(), outcome.one_line()))
}

/// A segment of a recording that grows while it is read, as far as it is read.
pub(super) struct Reading {
    path: PathBuf,
    scan: Scan,
    /// The bytes of the lines that are read.
    bytes: u64,
    /// The number of its header's entry.
    first: u64,
    header: Header,
    /// The entries after the header.
    entries: Vec<Entry>,
}

impl Reading {
    /// The segment with entry `n` of the recording in `folder`, up to its present end. Goes on with `before` if that is
    /// the same.
    ///
    /// # Errors
    /// One line: it can't be read, it is gone, or a guest other than `by` recorded it.
    fn of(folder: &Path, n: u64, before: Option<Self>, by: &Digest) -> Result<Self, String> {
        let numbers = segment_numbers(folder).map_err(with_causes)?;
        let first = numbers.into_iter().rev().find(|first| *first < n);
        let first = first.ok_or("its recording is not kept any more")?;
        let reading = match before.filter(|before| before.first == first) {
            Some(mut before) => {
                let (entries, bytes) = read(&before.path, &mut before.scan, before.bytes)?;
                before.entries.extend(entries);
                Self { bytes, ..before }
            }
            None => Self::open(segment_path(folder, first), first)?,
        };
        match reading.header.digest == by.to_string() {
            true => Ok(reading),
            false => Err("another version recorded it".to_owned()),
        }
    }

    fn open(path: PathBuf, first: u64) -> Result<Self, String> {
        let mut scan = Scan::new(&path.display().to_string());
        let (entries, bytes) = read(&path, &mut scan, 0)?;
        let mut entries = entries.into_iter();
        let Some(Event::Header(header)) = entries.next().map(|entry| entry.event) else {
            return Err("its recording has no header yet".to_owned());
        };
        Ok(Self {
            path,
            scan,
            bytes,
            first,
            header: *header,
            entries: entries.collect(),
        })
    }

    /// Whether it is too long to be kept for the next call, which then begins anew.
    pub(super) fn is_long(&self) -> bool {
        self.bytes > KEPT_BYTES_MAX
    }

    /// Where the call with entry `n` is among the entries, with its ending. `None` if it has no ending.
    fn call(&self, n: u64) -> Option<Range<usize>> {
        let at = self.entries.iter().position(|entry| entry.n == n)?;
        let mut entries = self.entries.get(at..)?.iter();
        let ending = entries.position(|entry| matches!(entry.event, Event::Ending(_)))?;
        Some(at..at + ending + 1)
    }
}

/// The whole lines from byte `from` on, and where they end.
fn read(path: &Path, scan: &mut Scan, from: u64) -> Result<(Vec<Entry>, u64), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = regular::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() < from {
        return Err("another recording took its place".to_owned());
    }
    let mut text = Vec::new();
    let limit = LINES_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut text).map_err(failed)?;
    if text.len() > LINES_BYTES_MAX {
        return Err("it is too long to compare".to_owned());
    }
    let mut entries = Vec::new();
    let mut bytes = from;
    // The host may be writing the last line.
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    for line in lines.filter_map(|line| line.strip_suffix(b"\n")) {
        entries.push(scan.line(line).map_err(with_causes)?);
        bytes += line.len() as u64 + 1;
    }
    Ok((entries, bytes))
}

/// The call that fires a timer.
const ON_TIMER: &str = "timer-events.on-timer";

/// A number among the arguments of a call or a question.
fn number(args: &RawValue, name: &str) -> Option<u64> {
    parsed::<Value>(args)?.get(name)?.as_u64()
}

/// The requests of the active guest while it begins with this header at this time, with these waiting timers (when
/// each is due, and its id). `None` if it asks more than can be answered here, or does not begin.
///
/// They are not recorded if the active instance did not begin there. A guest with timers schedules waiting timers anew
/// in `restore`, and later calls name timers by their ids. This therefore begins the active guest once more, with the
/// ids that its instance has.
async fn asked(active: &Instances, header: &Header, now_ms: u64, timers: &[(u64, u64)]) -> Option<Vec<Entry>> {
    let settings: Value = parsed(&header.settings)?;
    let backends = Backends {
        clock: Arc::new(VirtualClock::new(now_ms)),
        ..Instances::trial()
    };
    let identity = active.identity("shadow");
    let mut host = Host::new(identity, Tape::memory(), Grants::default(), backends, active.limits);
    host.timers = Timers::again(timers);
    let start = Start {
        settings: &settings,
        snapshot: header.snapshot.as_deref(),
        cpu_max: REPLAY_GUARD,
    };
    let begun = Instance::start(&active.engine, &active.program, host, start).await;
    let entries = begun.ok()?.host_mut().tape.take_entries();
    let is_time = |entry: &Entry| match &entry.event {
        Event::Ask(ask) => ask.name.starts_with("timers.") || ask.name.starts_with("clock."),
        _ => false,
    };
    entries.iter().all(is_time).then_some(entries)
}

/// The timers that wait after these entries, which start where an instance begins: when each is due, and its id.
fn waiting(begun_ms: u64, entries: impl IntoIterator<Item = Entry>) -> Vec<(u64, u64)> {
    let mut now_ms = begun_ms;
    let mut due = BTreeMap::new();
    for entry in entries {
        let (name, args, answer) = match entry.event {
            Event::Call(call) => {
                now_ms = call.at_ms;
                (call.name, call.args, None)
            }
            Event::Ask(Ask { name, args, answer }) => (name, args, answer),
            _ => continue,
        };
        let answered = answer.and_then(|answer| answer.get().parse::<u64>().ok());
        match (name.as_str(), answered) {
            ("clock.now-ms", Some(now)) => now_ms = now,
            ("timers.schedule", Some(timer)) => {
                let delay_ms = number(&args, "delay_ms");
                due.extend(delay_ms.map(|delay_ms| (timer, now_ms.saturating_add(delay_ms))));
            }
            (ON_TIMER | "timers.cancel", _) => {
                number(&args, "timer").and_then(|timer| due.remove(&timer));
            }
            _ => {}
        }
    }
    due.into_iter().map(|(timer, due_ms)| (due_ms, timer)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_candidate_gets_the_keys_settings_and_keeps_its_own_configuration() {
        let begun = to_raw_value(&json!({"wait": 1, "old": 2, "neg_names": {"s": "web"}})).unwrap();
        let settings = with_own(&json!({"wait": 9, "more": 3}), &json!({"wait": 1, "old": 2}), &begun).unwrap();
        let settings: Value = serde_json::from_str(settings.get()).unwrap();
        assert_eq!(settings, json!({"wait": 9, "more": 3, "neg_names": {"s": "web"}}));
    }

    #[test]
    fn waiting_timers_are_those_scheduled_and_neither_fired_nor_cancelled() {
        let lines = [
            r#"{"n":1,"ask":"timers.schedule","args":{"delay_ms":5},"answer":1}"#,
            r#"{"n":2,"at_ms":100,"call":"syncer.sync","args":{}}"#,
            r#"{"n":3,"ask":"timers.schedule","args":{"delay_ms":20},"answer":2}"#,
            r#"{"n":4,"ask":"clock.now-ms","args":{},"answer":103}"#,
            r#"{"n":5,"ask":"timers.schedule","args":{"delay_ms":20},"answer":3}"#,
            r#"{"n":6,"ask":"timers.schedule","args":{"delay_ms":20},"answer":4}"#,
            r#"{"n":7,"ask":"timers.cancel","args":{"timer":4},"answer":true}"#,
            r#"{"n":8,"result":null}"#,
            r#"{"n":9,"at_ms":120,"call":"timer-events.on-timer","args":{"timer":2}}"#,
            r#"{"n":10,"result":true}"#,
        ];
        let entries = lines.map(|line| Entry::parse(line).unwrap());
        assert_eq!(waiting(50, entries), [(55, 1), (123, 3)]);
        let other = r#"{"n":11,"at_ms":121,"call":"syncer.sync","args":{"timer":1}}"#;
        let fired = r#"{"n":12,"at_ms":122,"call":"timer-events.on-timer","args":{"timer":1}}"#;
        let after = |last: &str| waiting(50, [lines[0], last].map(|line| Entry::parse(line).unwrap()));
        assert_eq!((after(other), after(fired)), (vec![(55, 1)], vec![]));
    }
}
