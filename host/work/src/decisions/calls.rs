//! What a decision asked and wrote, read from its recording.
//!
//! ```text
//! journal: call n, questions, ending -> what is desired now, what was written, what was read, how it ended
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use trueup_capabilities::questions::Readers;
use trueup_capabilities::reading::{Write, cut, parsed};
use trueup_journal::{Call, Ending, Entry, Event, Segment, calls, segment_numbers, segment_path};

use super::fields::{Fields, differing};
use super::negs;
use super::recorded;

/// How many writes of a decision are listed. The others are counted, since more would fill many screens.
pub const WRITES_MAX: usize = 200;

/// How many older segments are searched for the previous decision. Each has about a thousand entries.
const SEGMENTS_BACK_MAX: usize = 8;

/// How many later segments are searched for the ends of operations. Most end within seconds.
const SEGMENTS_AHEAD_MAX: usize = 8;

/// How much later than its decision the recording of a call may say that it began. The two clocks are read one after
/// the other; a call that has the same number in another recording is of a later job.
const LATER_MS: u64 = 60_000;

/// What a decision asked and wrote.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallReport {
    /// The recording.
    pub file: PathBuf,
    /// How the call's input differs from that of the previous call about the same thing. `None` if no such call is
    /// kept.
    #[serde(rename = "wish", skip_serializing_if = "Option::is_none")]
    pub desired: Option<DesiredChange>,
    /// Its writes, in order.
    pub writes: Vec<Write>,
    /// The number of further writes.
    pub more_writes: usize,
    /// The number of questions, by name.
    pub asked: BTreeMap<String, u32>,
    /// The result, as JSON cut to a line, or how the call ended without one.
    pub ending: String,
    /// It returned an error, or nothing.
    pub failed: bool,
}

/// The ending of a call that has none.
const OPEN: &str = "its recording ends inside it";

impl CallReport {
    /// Whether the recording has no ending of the call: a host still runs it, or ended inside it.
    pub(super) fn is_open(&self) -> bool {
        self.ending == OPEN
    }
}

/// How the input of a call differs from that of the previous call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DesiredChange {
    /// The entry number of the previous call.
    pub against: u64,
    /// The changed fields.
    #[serde(flatten)]
    pub fields: Fields,
}

/// The recordings of one instance.
pub(super) struct Recordings {
    /// The folders that may contain recordings: the full one, and the one with only what a restart needs.
    folders: Vec<PathBuf>,
    read: BTreeMap<PathBuf, Option<Segment>>,
    /// Why the last recording that can't be read can't be. `None` if each can, or was removed.
    damage: Option<String>,
}

impl Recordings {
    pub(super) fn new(state_dir: &Path, guest: &str, key: &str) -> Self {
        let folder = |root: &str| trueup_journal::instance_dir(&state_dir.join(root), guest, key);
        Self {
            folders: vec![folder("journals"), folder("instances")],
            read: BTreeMap::new(),
            damage: None,
        }
    }

    /// The segment numbers in a folder, oldest first. Empty if the folder does not exist or disappears.
    fn numbers(folder: &Path) -> Vec<u64> {
        segment_numbers(folder).unwrap_or_default()
    }

    fn segment(&mut self, folder: &Path, first: u64) -> Option<&Segment> {
        let path = segment_path(folder, first);
        if !self.read.contains_key(&path) {
            let read = Segment::read(&path);
            // A host may remove the oldest one at this moment.
            self.damage = read.as_ref().err().filter(|_| path.exists()).map(ToString::to_string);
            self.read.insert(path.clone(), read.ok());
        }
        self.read.get(&path)?.as_ref()
    }

    /// The folders with a segment that may hold entry `n`, each with the numbers of its segments and the place of that
    /// one.
    fn holding(&self, n: u64) -> Vec<(PathBuf, Vec<u64>, usize)> {
        let holding = self.folders.iter().filter_map(|folder| {
            let numbers = Self::numbers(folder);
            let at = numbers.partition_point(|first| *first < n).checked_sub(1)?;
            Some((folder.clone(), numbers, at))
        });
        holding.collect()
    }

    /// What the call at entry `n`, which began at `began_ms`, asked and wrote, or why the recording does not show it.
    pub(super) fn report(&mut self, n: u64, began_ms: u64) -> Result<CallReport, String> {
        for (folder, numbers, at) in self.holding(n) {
            let Some(first) = numbers.get(at) else { continue };
            let Some(segment) = self.segment(&folder, *first) else {
                continue;
            };
            if n >= segment.next_n() {
                continue;
            }
            let is_it = |call: &&[Entry]| call.first().is_some_and(|entry| entry.n == n);
            let entries = calls(&segment.entries).find(is_it).map(<[Entry]>::to_vec);
            let entries = entries.ok_or_else(|| format!("entry {n} of its recording is no call"))?;
            let Some(call) = entries.first().and_then(Entry::call) else {
                continue;
            };
            if call.at_ms > began_ms.saturating_add(LATER_MS) {
                // An operator moved the recording away: its numbers began again.
                continue;
            }
            let desired = self.desired_change(call, n, &folder, numbers.iter().take(at + 1).rev());
            let readers = self.readers(&folder, numbers.iter().skip(at), n);
            return Ok(report(segment_path(&folder, *first), &entries, desired, readers));
        }
        let gone = || "its recording is not kept any more".to_owned();
        Err(self.damage.clone().unwrap_or_else(gone))
    }

    /// Readers that know how the operations ended that began at entry `n` or later, from the segments starting with
    /// that entry's.
    fn readers<'a>(&mut self, folder: &Path, numbers: impl Iterator<Item = &'a u64>, n: u64) -> Readers {
        let mut readers = Readers::default();
        for first in numbers.take(1 + SEGMENTS_AHEAD_MAX) {
            let Some(segment) = self.segment(folder, *first) else {
                continue;
            };
            for entry in segment.entries.iter().filter(|entry| entry.n >= n) {
                readers.all().for_each(|(_, reader)| reader.after(entry));
            }
        }
        readers
    }

    /// How a call differs from the previous one about the same thing.
    fn desired_change<'a>(
        &mut self,
        call: &Call,
        n: u64,
        folder: &Path,
        segments: impl Iterator<Item = &'a u64>,
    ) -> Option<DesiredChange> {
        if !negs::says_what_should_be(&call.name) {
            return None;
        }
        let now: Value = serde_json::from_str(call.args.get()).ok()?;
        let now = what_should_be(now);
        let uid = now.get("service_uid").cloned();
        let subject = recorded::subject(&now);
        for first in segments.take(SEGMENTS_BACK_MAX) {
            let Some(segment) = self.segment(folder, *first) else {
                continue;
            };
            let before = segment.entries.iter().rev().filter(|entry| entry.n < n);
            let before = before.filter_map(|entry| Some((entry.n, entry.call()?)));
            for (against, before) in before.filter(|(_, before)| before.name == call.name) {
                let Ok(was) = serde_json::from_str::<Value>(before.args.get()) else {
                    continue;
                };
                let was = what_should_be(was);
                if was.get("service_uid").cloned() == uid && recorded::subject(&was) == subject {
                    let fields = negs::target_difference(&call.name, &was, &now);
                    return Some(DesiredChange {
                        against,
                        fields: fields.unwrap_or_else(|| differing(&was, &now, &|_| false)),
                    });
                }
            }
        }
        None
    }

    /// The number and content of the newest calls that `fits` accepts, at most `most`.
    pub(super) fn newest(&mut self, most: usize, fits: impl Fn(&Call, &[Entry]) -> bool) -> Vec<(u64, Call)> {
        let mut found = Vec::new();
        for folder in self.folders.clone() {
            for first in Self::numbers(&folder).into_iter().rev() {
                let Some(segment) = self.segment(&folder, first) else {
                    continue;
                };
                for entries in calls(&segment.entries).rev() {
                    let Some((n, call)) = begun(entries) else { continue };
                    if fits(call, entries) {
                        found.push((n, call.clone()));
                    }
                    if found.len() >= most {
                        return found;
                    }
                }
            }
            if !found.is_empty() {
                break;
            }
        }
        found
    }

    /// The calls after entry `n` that have no ending, newest first: a host runs the newest still, or ended inside it.
    pub(super) fn open_since(&mut self, n: u64) -> Vec<(u64, Call)> {
        let mut open = Vec::new();
        for folder in self.folders.clone() {
            let numbers = Self::numbers(&folder);
            let at = numbers.partition_point(|first| *first <= n).saturating_sub(1);
            for first in numbers.get(at..).unwrap_or_default().iter().rev() {
                let Some(segment) = self.segment(&folder, *first) else {
                    continue;
                };
                // A call within a segment has an ending, or is its last.
                let is_open = |call: &&[Entry]| !call.iter().any(|entry| matches!(entry.event, Event::Ending(_)));
                let last = calls(&segment.entries).next_back().filter(is_open).and_then(begun);
                open.extend(last.filter(|(at, _)| *at > n).map(|(at, call)| (at, call.clone())));
            }
            if !open.is_empty() {
                break;
            }
        }
        open
    }

    /// The folder with its recordings. `None` if there is none.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folders.iter().find(|folder| folder.is_dir()).map(PathBuf::as_path)
    }

    /// The header of the segment with entry `n`: it names the guest that decided.
    pub(super) fn header_of(&mut self, n: u64) -> Option<trueup_journal::Header> {
        for (folder, numbers, at) in self.holding(n) {
            if let Some(segment) = self.segment(&folder, *numbers.get(at)?) {
                return Some(segment.header.clone());
            }
        }
        None
    }
}

/// The desired state in the arguments of a call: one of them, or all.
fn what_should_be(args: Value) -> Value {
    let one = args.get("desired").or_else(|| args.get("new"));
    one.cloned().unwrap_or(args)
}

/// The number and the content of the call that these entries begin with.
fn begun(entries: &[Entry]) -> Option<(u64, &Call)> {
    let entry = entries.first()?;
    Some((entry.n, entry.call()?))
}

fn report(file: PathBuf, entries: &[Entry], desired: Option<DesiredChange>, mut readers: Readers) -> CallReport {
    let mut report = CallReport {
        file,
        desired,
        writes: Vec::new(),
        more_writes: 0,
        asked: BTreeMap::new(),
        ending: OPEN.to_owned(),
        failed: true,
    };
    for entry in entries {
        match &entry.event {
            Event::Ask(ask) => {
                *report.asked.entry(ask.name.clone()).or_default() += 1;
                let Some((_, reader)) = readers.of(&ask.name) else {
                    continue;
                };
                reader.learn(ask);
                for write in reader.wrote(entry.n, ask) {
                    if report.writes.len() < WRITES_MAX {
                        report.writes.push(write);
                    } else {
                        report.more_writes += 1;
                    }
                }
            }
            Event::Ending(ending) => {
                report.ending = ended(ending);
                report.failed = match ending {
                    Ending::Result(result) => parsed::<Value>(result).is_none_or(|value| value.get("Err").is_some()),
                    _ => true,
                };
            }
            Event::Header(_) | Event::Call(_) | Event::RolledBack(_) => {}
        }
    }
    report
}

fn ended(ending: &Ending) -> String {
    match ending.parts() {
        (_, Ok(result)) => cut(result.get()),
        (kind, Err(text)) => format!("{kind}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEADER: &str = r#"{"n":0,"header":{"format":1,"guest":"lbaas","version":"1","digest":"sha256:x","world":"w","host":"0","settings":{},"limits":{}}}"#;

    fn recordings(dir: &Path, lines: &[&str]) -> Recordings {
        let folder = dir.join("journals/lbaas/default%2Fweb");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("0.jsonl"), format!("{HEADER}\n{}\n", lines.join("\n"))).unwrap();
        Recordings::new(dir, "lbaas", "default/web")
    }

    #[test]
    fn calls_without_an_ending_are_found_in_each_segment_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let call = |n: u64| format!(r#"{{"n":{n},"at_ms":{n},"call":"reconciliation.reconcile","args":{{}}}}"#);
        let mut recordings = recordings(dir.path(), &[&call(1), r#"{"n":2,"result":{"Ok":{}}}"#, &call(3)]);
        let folder = recordings.folder().unwrap().to_owned();
        let header = HEADER.replace("\"n\":0", "\"n\":4");
        fs::write(folder.join("4.jsonl"), format!("{header}\n{}\n", call(5))).unwrap();
        let open =
            |recordings: &mut Recordings, n| recordings.open_since(n).into_iter().map(|(n, _)| n).collect::<Vec<_>>();
        assert_eq!(open(&mut recordings, 0), [5, 3]);
        assert_eq!(open(&mut recordings, 3), [5]);
        assert_eq!(open(&mut recordings, 5), [0; 0]);

        fs::write(folder.join("6.jsonl"), "torn in its header\n").unwrap();
        let said = recordings.report(7, 0).unwrap_err();
        assert!(said.contains("6.jsonl"), "{said}");
    }

    #[test]
    fn a_decision_is_told_with_what_it_was_given_and_what_it_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let server =
            r#"{"Server":{"name":"n1.http.web","backend":"b1","ip":"192.0.2.1","port":30081,"check":"enabled"}}"#;
        let mut recordings = recordings(
            dir.path(),
            &[
                r#"{"n":1,"at_ms":1,"call":"reconciliation.reconcile","args":{"desired":{"service_uid":"u","ports":[{"name":"http","internal":30080}]}}}"#,
                r#"{"n":2,"result":{"Ok":{}}}"#,
                r#"{"n":3,"at_ms":2,"call":"reconciliation.reconcile","args":{"desired":{"service_uid":"other","ports":[]}}}"#,
                r#"{"n":4,"result":{"Ok":{}}}"#,
                r#"{"n":5,"at_ms":3,"call":"reconciliation.reconcile","args":{"desired":{"service_uid":"u","ports":[{"name":"http","internal":30081}]}}}"#,
                r#"{"n":6,"ask":"api.list-tagged","args":{"tag":"t"},"answer":{"Ok":[{"identifier":"b1","state":"Ok","spec":{"Backend":{"name":"http.web","load_balancer":"lb-1","mode":"Tcp","health_check":""}}}]}}"#,
                &format!(
                    r#"{{"n":7,"ask":"api.create","args":{{"specs":[{server},{server}],"tags":[]}},"answer":[{{"Ok":{{"identifier":"s1","state":"Ok","spec":{server}}}}},{{"Err":{{"Unavailable":"x"}}}}]}}"#
                ),
                r#"{"n":8,"ask":"api.destroy","args":{"refs":[{"kind":"Backend","identifier":"b1"}]}}"#,
                r#"{"n":9,"cancelled":"stopped"}"#,
                r#"{"n":10,"at_ms":60001,"call":"reconciliation.reconcile","args":{"desired":{}}}"#,
                r#"{"n":11,"result":{"Ok":{}}}"#,
            ],
        );
        let gone = "its recording is not kept any more";
        assert_eq!(recordings.report(10, 0).unwrap_err(), gone, "that of a later job");
        assert!(recordings.report(10, 1).is_ok());
        let report = recordings.report(5, 0).unwrap();
        let desired = report.desired.unwrap();
        assert_eq!(desired.against, 1, "the call in between was about another UID");
        assert_eq!(desired.fields.fields[0].path, "ports[http].internal");
        let writes: Vec<String> = report
            .writes
            .iter()
            .map(|it| format!("{:?} {} {} {} {:?}", it.action, it.kind, it.name, it.details, it.error))
            .collect();
        assert_eq!(
            writes,
            [
                "Create server n1.http.web 192.0.2.1:30081 in http.web None",
                r#"Create server n1.http.web 192.0.2.1:30081 in http.web Some("{\"Unavailable\":\"x\"}")"#,
                r#"Destroy backend http.web on lb-1 Some("no answer")"#,
            ]
        );
        assert_eq!(report.ending, "cancelled: stopped");
        assert_eq!(report.asked["api.create"], 1);
        assert_eq!(recordings.report(1, 0).unwrap().desired, None, "it is the first");
        assert_eq!(recordings.report(12, 0).unwrap_err(), gone);
        assert_eq!(
            recordings.report(2, 0).unwrap_err(),
            "entry 2 of its recording is no call"
        );
    }
}
