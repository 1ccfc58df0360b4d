//! What a decision asked and wrote, read from its recording.
//!
//! ```text
//! journal: call n, questions, ending -> what is desired now, what was written, what was read, how it ended
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Serialize;
use serde_json::Value;
use trueup_capabilities::neg::{Endpoint, EndpointGroup, shown};
use trueup_capabilities::questions::Readers;
use trueup_capabilities::reading::{Write, cut, parsed};
use trueup_journal::{Call, Entry, Event, Segment, calls, segment_numbers, segment_path};

use super::fields::{Field, Fields, differing};
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

/// The call whose argument is the whole desired state.
const SYNC: &str = "syncer.sync";

/// Interfaces whose other calls report events, or are requests of different pods.
const EVENTS: [&str; 4] = ["syncer.", "timer-events.", "migrator.", "datastore."];

/// What a decision asked and wrote.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
    folders: [PathBuf; 2],
    read: BTreeMap<PathBuf, Option<Rc<Segment>>>,
    /// Why the last recording that can't be read can't be. `None` if each can, or was removed.
    damage: Option<String>,
}

impl Recordings {
    pub(super) fn new(state_dir: &Path, guest: &str, key: &str) -> Self {
        let folder = |root: &str| trueup_journal::instance_dir(&state_dir.join(root), guest, key);
        Self {
            folders: ["journals", "instances"].map(folder),
            read: BTreeMap::new(),
            damage: None,
        }
    }

    fn segment(&mut self, folder: &Path, first: u64) -> Option<Rc<Segment>> {
        let path = segment_path(folder, first);
        if let Some(read) = self.read.get(&path) {
            return read.clone();
        }
        let read = Segment::read(&path);
        // A host may remove the oldest one at this moment.
        self.damage = read.as_ref().err().filter(|_| path.exists()).map(ToString::to_string);
        let read = read.ok().map(Rc::new);
        self.read.insert(path, read.clone());
        read
    }

    /// The folders with a segment that may hold entry `n`, each with the numbers of its segments and the place of that
    /// one.
    fn holding(&self, n: u64) -> Vec<(PathBuf, Vec<u64>, usize)> {
        let holding = self.folders.iter().filter_map(|folder| {
            let numbers = numbers(folder);
            let at = numbers.partition_point(|first| *first < n).checked_sub(1)?;
            Some((folder.clone(), numbers, at))
        });
        holding.collect()
    }

    /// What the call at entry `n`, which began at `began_ms`, asked and wrote, or why the recording does not show it.
    pub(super) fn report(&mut self, n: u64, began_ms: u64) -> Result<CallReport, String> {
        for (folder, numbers, at) in self.holding(n) {
            let (before, ahead) = numbers.split_at(at + 1);
            let first = before.last().copied().unwrap_or_default();
            let Some(segment) = self.segment(&folder, first).filter(|segment| n < segment.next_n()) else {
                continue;
            };
            let is_it = |call: &&[Entry]| call.first().is_some_and(|entry| entry.n == n);
            let entries = calls(&segment.entries).find(is_it);
            let entries = entries.ok_or_else(|| format!("entry {n} of its recording is no call"))?;
            let call = entries.first().and_then(Entry::call);
            // For a later one, an operator moved the recording away: its numbers began again.
            let Some(call) = call.filter(|call| call.at_ms <= began_ms.saturating_add(LATER_MS)) else {
                continue;
            };
            let desired = self.desired_change(call, n, &folder, before);
            // How the operations ended that began at entry `n` or later.
            let mut readers = Readers::default();
            let ahead = ahead.iter().take(SEGMENTS_AHEAD_MAX);
            let ahead = ahead.filter_map(|first| self.segment(&folder, *first));
            for segment in [Rc::clone(&segment)].into_iter().chain(ahead) {
                for entry in segment.entries.iter().filter(|entry| entry.n >= n) {
                    readers.all().for_each(|(_, reader)| reader.after(entry));
                }
            }
            return Ok(report(segment_path(&folder, first), entries, desired, readers));
        }
        let gone = || "its recording is not kept any more".to_owned();
        Err(self.damage.clone().unwrap_or_else(gone))
    }

    /// How a call differs from the previous one about the same thing. `segments`: up to that with the call.
    fn desired_change(&mut self, call: &Call, n: u64, folder: &Path, segments: &[u64]) -> Option<DesiredChange> {
        if !says_what_should_be(&call.name) {
            return None;
        }
        let now = what_should_be(call)?;
        let about = |args: &Value| (args.get("service_uid").cloned(), recorded::subject(args));
        let about_now = about(&now);
        let segments = segments.iter().rev().take(SEGMENTS_BACK_MAX);
        for segment in segments.filter_map(|first| self.segment(folder, *first)) {
            let before = segment.entries.iter().rev().filter(|entry| entry.n < n);
            let before = before.filter_map(|entry| Some((entry.n, entry.call()?)));
            let before = before.filter(|(_, before)| before.name == call.name);
            let mut before = before.filter_map(|(n, before)| Some((n, what_should_be(before)?)));
            if let Some((against, was)) = before.find(|(_, was)| about(was) == about_now) {
                let fields = target_difference(&call.name, &was, &now);
                let fields = fields.unwrap_or_else(|| differing(&was, &now, &|_| false));
                return Some(DesiredChange { against, fields });
            }
        }
        None
    }

    /// The number and content of the newest calls that `fits` accepts, at most `most`.
    pub(super) fn newest(&mut self, most: usize, fits: impl Fn(&Call, &[Entry]) -> bool) -> Vec<(u64, Call)> {
        let mut found = Vec::new();
        for folder in self.folders.clone() {
            let numbers = numbers(&folder).into_iter().rev();
            for segment in numbers.filter_map(|first| self.segment(&folder, first)) {
                let newest = calls(&segment.entries).rev();
                let newest = newest.filter_map(|entries| begun(entries).filter(|(_, call)| fits(call, entries)));
                let newest = newest.take(most.saturating_sub(found.len()));
                found.extend(newest.map(|(n, call)| (n, call.clone())));
                if found.len() >= most {
                    return found;
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
            let numbers = numbers(&folder);
            let at = numbers.partition_point(|first| *first <= n).saturating_sub(1);
            let numbers = numbers.into_iter().skip(at).rev();
            for segment in numbers.filter_map(|first| self.segment(&folder, first)) {
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
        let mut holding = self.holding(n).into_iter();
        let segment = holding.find_map(|(folder, numbers, at)| self.segment(&folder, *numbers.get(at)?));
        segment.map(|segment| segment.header.clone())
    }
}

/// The segment numbers in a folder, oldest first. Empty if the folder does not exist or disappears.
fn numbers(folder: &Path) -> Vec<u64> {
    segment_numbers(folder).unwrap_or_default()
}

/// The desired state in the arguments of a call: one of them, or all.
fn what_should_be(call: &Call) -> Option<Value> {
    let args: Value = parsed(&call.args)?;
    Some(args.get("desired").or_else(|| args.get("new")).cloned().unwrap_or(args))
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
        ending: OPEN.to_owned(),
        failed: true,
        ..CallReport::default()
    };
    for entry in entries {
        match &entry.event {
            Event::Ask(ask) => {
                *report.asked.entry(ask.name.clone()).or_default() += 1;
                let Some((_, reader)) = readers.of(&ask.name) else {
                    continue;
                };
                reader.learn(ask);
                let mut writes = reader.wrote(entry.n, ask).into_iter();
                let room = WRITES_MAX.saturating_sub(report.writes.len());
                report.writes.extend(writes.by_ref().take(room));
                report.more_writes += writes.count();
            }
            Event::Ending(ending) => match ending.parts() {
                (_, Ok(result)) => {
                    report.ending = cut(result.get());
                    report.failed = parsed::<Value>(result).is_none_or(|value| value.get("Err").is_some());
                }
                (kind, Err(text)) => report.ending = format!("{kind}: {text}"),
            },
            Event::Header(_) | Event::Call(_) | Event::RolledBack(_) => {}
        }
    }
    report
}

/// Whether a call's argument is the desired state. For NEGs only one call qualifies, for pod addresses none.
fn says_what_should_be(call: &str) -> bool {
    call == SYNC || !EVENTS.iter().any(|interface| call.starts_with(interface))
}

/// How a target differs from the previous one, by endpoint. An endpoint that changes its address families is one field.
/// `None` if the call has no target.
fn target_difference(call: &str, was: &Value, now: &Value) -> Option<Fields> {
    if call != SYNC {
        return None;
    }
    let was = by_location(was)?;
    let now = by_location(now)?;
    let locations: BTreeSet<&String> = was.keys().chain(now.keys()).collect();
    let none = BTreeSet::new();
    let mut fields = Fields::default();
    for location in locations {
        let was = was.get(location).unwrap_or(&none);
        let now = now.get(location).unwrap_or(&none);
        let mut gone: Vec<&Endpoint> = was.difference(now).collect();
        for new in now.difference(was) {
            let twin = gone.iter().position(|old| shown::are_twins(old, new));
            fields.push(field(location, twin.map(|at| gone.remove(at)), Some(new)));
        }
        for old in gone {
            fields.push(field(location, Some(old), None));
        }
    }
    Some(fields)
}

fn field(location: &str, old: Option<&Endpoint>, new: Option<&Endpoint>) -> Field {
    let text = |endpoint: &Endpoint| Value::from(shown::endpoint(endpoint));
    let path = location.to_owned();
    let old = old.map(text);
    let new = new.map(text);
    Field { path, old, new }
}

fn by_location(args: &Value) -> Option<BTreeMap<String, BTreeSet<Endpoint>>> {
    let target: Vec<EndpointGroup> = serde_json::from_value(args.get("target")?.clone()).ok()?;
    let group = |group: EndpointGroup| {
        let location = format!("{}/{}", group.location.zone, group.location.subnet);
        (location, group.endpoints.into_iter().collect())
    };
    Some(target.into_iter().map(group).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

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

    fn endpoint(n: u8, is_dual: bool) -> Value {
        let ipv6 = if is_dual { format!("fd00::{n}") } else { String::new() };
        json!({"ip": format!("10.0.0.{n}"), "ipv6": ipv6, "port": "80", "node": "vm"})
    }

    #[test]
    fn a_target_differs_endpoint_by_endpoint_and_one_that_moves_is_one_field() {
        let target = |endpoints: Vec<Value>| json!({"target": [{"location": {"zone": "a", "subnet": "s"}, "endpoints": endpoints}]});
        let was = target(vec![endpoint(1, false), endpoint(2, false), endpoint(3, true)]);
        let now = target(vec![endpoint(0, false), endpoint(1, true), endpoint(3, true)]);
        let fields = target_difference(SYNC, &was, &now).unwrap();
        let text = |value: &Option<Value>| value.as_ref().map(|it| it.as_str().unwrap().to_owned());
        let shown: Vec<_> = fields.fields.iter().map(|it| (text(&it.old), text(&it.new))).collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            shown,
            [
                (None, some("10.0.0.0:80 (vm)")),
                (some("10.0.0.1:80 (vm)"), some("10.0.0.1+[fd00::1]:80 (vm)")),
                (some("10.0.0.2:80 (vm)"), None),
            ]
        );
        assert!(target_difference(SYNC, &now, &now).unwrap().is_empty());
        assert_eq!(target_difference("reconciliation.reconcile", &was, &now), None);
        assert!(says_what_should_be(SYNC) && says_what_should_be("reconciliation.reconcile"));
        assert!(!says_what_should_be("syncer.on-operation") && !says_what_should_be("timer-events.on-timer"));
        assert!(!says_what_should_be("datastore.assign-pod-ipv4-address"));
    }
}
