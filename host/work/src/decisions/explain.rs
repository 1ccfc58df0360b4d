//! Explains what was done about a key and why, from the state folder of a host that is running or ended long ago; or
//! why there is nothing to explain.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use anyhow::{anyhow, bail};
use serde::Serialize;
use serde_json::{Value, json};

use super::calls::{CallReport, Recordings};
use super::cause::{Cause, Causes, TimedCause};
use super::fields::{Fields, differing, is_default};
use super::record::{Decision, JobResult, Record};
use super::{record, recorded};
use crate::files;
use crate::lifecycle::quarantine::SetAside;
use crate::status::{KeyShown, KeyState};

/// What to explain about a key.
#[derive(Debug, Clone, Copy)]
pub struct Selection {
    /// How many of its last jobs.
    pub last: usize,
    /// Instead: the job of this decision. The number is that in its id.
    pub decision: Option<u64>,
    /// Only jobs that began at this time or later, in milliseconds since 1970.
    pub since_ms: Option<u64>,
}

impl Selection {
    /// Whether a job that began then is recent enough.
    pub(super) fn takes(&self, began_ms: u64) -> bool {
        self.since_ms.is_none_or(|since_ms| began_ms >= since_ms)
    }
}

/// What was done about a key, and why.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// The guest, as the configuration names it. Several, joined by `, `, if several guests of a node were called about
    /// the key.
    pub guest: String,
    /// The key.
    pub key: String,
    /// Set if its input is set aside: the host does not reconcile it until it or the guest changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<SetAside>,
    /// Set if the running host works on the key, failed on it, keeps its objects although nothing names it, or can't
    /// read something that may name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Now>,
    /// The requested jobs, oldest first.
    pub jobs: Vec<Explained>,
    /// The number of jobs that are kept; for pod addresses, the number that was examined.
    pub kept: usize,
    /// Unreadable lines: torn, or from a newer host.
    pub unread: usize,
}

/// What the running host does about a key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Now {
    /// Its state.
    pub state: KeyState,
    /// Since when, in milliseconds since 1970. Of a failed key: when the first of its failures was.
    pub since_ms: u64,
    /// The last error, if the key was not true since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Consecutive failures.
    pub failures: u32,
    /// When the host tries again. Absent if it waits for a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_in_ms: Option<u64>,
    /// What can't be read and may name the key, one line each. Nothing while a job runs.
    pub unreadable: Vec<String>,
}

impl Now {
    /// `problems`: those of the source. `None` if there are none, no job runs, and the last one did not fail.
    pub fn of(shown: &KeyShown, problems: &[String]) -> Option<Self> {
        let is_running = shown.state == KeyState::Running;
        if !is_running && shown.error.is_none() && problems.is_empty() {
            return None;
        }
        Some(Self {
            state: shown.state,
            since_ms: shown.since_ms,
            error: shown.error.clone(),
            failures: shown.failures,
            next_try_in_ms: shown.next_try_in_ms,
            unreadable: if is_running { Vec::new() } else { problems.to_vec() },
        })
    }
}

impl Explanation {
    /// The instance of the last call, `GUEST/INSTANCE`: the name under which a running host shows a guest of a node,
    /// which has no key of its own for each Service.
    pub fn instance(&self) -> Option<&str> {
        let made = self.jobs.last()?.job.decisions.last()?;
        made.id.rsplit_once('#').map(|(instance, _)| instance)
    }
}

/// One job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Explained {
    /// Its record.
    pub job: Record,
    /// Set if the jobs before it did not end well (they failed, or were interrupted while they slept): the changes they
    /// were to apply. This job applies them too, even if something else caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Set if another guest decided the previous job: its name, version and digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_before: Option<String>,
    /// Set if the configuration was reloaded: how the settings and limits of the guest differ from those of the
    /// previous job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings_changed: Option<Fields>,
    /// For each of its decisions, in order: what it asked and wrote.
    pub calls: Vec<ReportedCall>,
}

/// The start of a series of tries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Origin {
    /// When the first try began, in milliseconds since 1970.
    pub began_ms: u64,
    /// The ids of its decisions.
    pub decisions: Vec<String>,
    /// Why these tries ran. Changes of one object are merged.
    pub causes: Vec<TimedCause>,
    /// The number of further causes.
    #[serde(skip_serializing_if = "is_default")]
    pub more_causes: usize,
}

/// A decision as its recording shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportedCall {
    /// `GUEST/KEY#N`.
    pub decision: String,
    /// What it asked and wrote.
    #[serde(rename = "told", skip_serializing_if = "Option::is_none")]
    pub report: Option<CallReport>,
    /// Why the recording does not show it.
    #[serde(rename = "untold", skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Explains a key of a guest, or of the guest that has decided about the key if `guest` is `None`. Only reads: a host
/// may write at the same time. For a guest with one instance (pod addresses, a node's guests) the key is the instance
/// (the node's name), or anything that a call was about: a container's id, an address, a pod, a Service. Without
/// `guest`, the calls of all these guests about it are explained.
///
/// # Errors
/// Why there is nothing to explain, in one line.
pub fn explain(state_dir: &Path, guest: Option<&str>, key: &str, wanted: Selection) -> anyhow::Result<Explanation> {
    if !state_dir.is_dir() {
        bail!(
            "no state folder at {}: give it with --state-dir, or the host's configuration with --config",
            state_dir.display()
        );
    }
    let decided_by = match guest {
        Some(guest) => Some(guest.to_owned()),
        None => guest_of(state_dir, key)?,
    };
    let Some(guest) = decided_by.as_deref() else {
        return of_all(state_dir, key, wanted);
    };
    // The form in which status and stdout name an instance on a node.
    let of_instance = key.strip_prefix(guest).and_then(|rest| rest.strip_prefix('/'));
    let (records, unread) = record::read(&record::path(state_dir, guest, key))?;
    if records.is_empty() && !has_keys(state_dir, guest) {
        return recorded::explain(state_dir, guest, of_instance.unwrap_or(key), wanted);
    }
    let mut recordings = Recordings::new(state_dir, guest, key);
    let last = wanted.last.max(1);
    let open = recorded::open((guest, key), &records, wanted, &mut recordings);
    if records.is_empty() && open.is_empty() {
        return Err(nothing(state_dir, guest, key, &recordings));
    }
    let picked = match wanted.decision {
        None => records.len().saturating_sub(last)..records.len(),
        Some(n) => {
            let made = |record: &Record| record.decisions.iter().any(|made| made.n == Some(n));
            let at = records.iter().rposition(made);
            let at = at.ok_or_else(|| no_such(key, n, &records))?;
            at..at + 1
        }
    };
    let recent = picked.filter(|at| records.get(*at).is_some_and(|record| wanted.takes(record.began_ms)));
    let jobs = recent.filter_map(|at| explained(&records, at, &mut recordings));
    let mut jobs: Vec<Explained> = jobs.chain(open).collect();
    jobs.sort_by_key(|of| of.job.began_ms);
    jobs.drain(..jobs.len().saturating_sub(last));
    Ok(Explanation {
        guest: guest.to_owned(),
        key: key.to_owned(),
        set_aside: set_aside(state_dir, guest, key),
        now: None,
        jobs,
        kept: records.len(),
        unread,
    })
}

/// Every guest with any data, by name.
fn guests(state_dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut guests = BTreeSet::new();
    for root in KEPT {
        guests.extend(record::names(&state_dir.join(root), trueup_journal::key_of)?);
    }
    Ok(guests)
}

/// The only guest that has decided about a key. `None` if no guest has such a key.
fn guest_of(state_dir: &Path, key: &str) -> anyhow::Result<Option<String>> {
    let mut found = Vec::new();
    for guest in guests(state_dir)? {
        let of_instance = key.strip_prefix(guest.as_str()).and_then(|rest| rest.strip_prefix('/'));
        // An entry that is no folder holds no key.
        let known = known(state_dir, &guest).unwrap_or_default();
        let is_known = known.contains(key) || of_instance.is_some_and(|key| known.contains(key));
        // The file name of a long key is shortened and is not the key.
        if is_known || record::path(state_dir, &guest, key).is_file() {
            found.push(guest);
        }
    }
    if found.len() > 1 {
        bail!("several guests have decided about `{key}`; {}", choice(&found));
    }
    Ok(found.pop())
}

/// Explains what guests without keys were called for, where no guest has such a key.
fn of_all(state_dir: &Path, key: &str, wanted: Selection) -> anyhow::Result<Explanation> {
    let guests = guests(state_dir)?;
    // The number of a decision says nothing without its guest.
    if wanted.decision.is_none() || guests.len() == 1 {
        let without_keys = guests.iter().filter(|guest| !has_keys(state_dir, guest));
        if let Some(explanation) = recorded::explain_all(state_dir, without_keys, key, wanted) {
            return Ok(explanation);
        }
    }
    // If there is only one guest, or one with a similar key, its error says what it knows.
    let is_alike = |guest: &&String| known(state_dir, guest).is_ok_and(|known| !nearest(key, &known).is_empty());
    let one = guests.first().filter(|_| guests.len() == 1);
    let Some(guest) = one.or_else(|| guests.iter().find(is_alike)) else {
        let known = guests.iter().filter_map(|guest| known(state_dir, guest).ok());
        let offered = offered(key, &known.flatten().collect());
        bail!("nothing is known of `{key}`{offered}; {}", choice(&guests));
    };
    Err(nothing(state_dir, guest, key, &Recordings::new(state_dir, guest, key)))
}

/// The folders that hold data about keys, by guest and key.
const KEPT: [&str; 3] = ["decisions", "journals", "instances"];

/// Whether a guest has keys: the host keeps records of their jobs. If not, its recordings say why it was called.
fn has_keys(state_dir: &Path, guest: &str) -> bool {
    trueup_journal::guest_dir(&state_dir.join("keys"), guest).is_dir()
}

/// What the jobs since the last successful one were to apply. The next job applies that too, whatever caused it. A
/// change that was undone in the meantime is no cause.
fn origin(earlier: &[Record]) -> Option<Origin> {
    let ended_well = |record: &Record| matches!(record.came, JobResult::True | JobResult::Gone);
    let from = earlier.iter().rposition(ended_well).map_or(0, |at| at + 1);
    let row = earlier.get(from..).unwrap_or_default();
    let first = row.iter().find(|record| !record.goes_on())?;
    let mut why = Causes::default();
    for record in row {
        why.more += record.more_causes;
        for TimedCause { at_ms, cause } in record.causes.iter().filter(|timed| !timed.cause.goes_on()) {
            why.add(*at_ms, cause.clone());
        }
    }
    (!why.causes.is_empty()).then(|| Origin {
        began_ms: first.began_ms,
        decisions: first.decisions.iter().map(|made| made.id.clone()).collect(),
        causes: why.causes,
        more_causes: why.more,
    })
}

fn explained(records: &[Record], at: usize, recordings: &mut Recordings) -> Option<Explained> {
    let job = records.get(at)?;
    let earlier = records.get(..at).unwrap_or_default();
    let before = earlier.iter().rev().find_map(|record| record.decisions.last());
    let other = before.filter(|was| job.decisions.last().is_some_and(|is| was.digest != is.digest));
    let calls = job.decisions.iter();
    Some(Explained {
        calls: calls.map(|made| reported_call(made, recordings)).collect(),
        job: job.clone(),
        origin: origin(earlier),
        guest_before: other.map(|was| format!("{}@{} {}", was.guest, was.version, was.digest)),
        settings_changed: settings_changed(earlier, job, recordings),
    })
}

/// How the settings and limits of a job after a reload differ from those of the job before, by the headers of their
/// recordings.
fn settings_changed(earlier: &[Record], job: &Record, recordings: &mut Recordings) -> Option<Fields> {
    if !job.causes.iter().any(|timed| timed.cause == Cause::Reloaded) {
        return None;
    }
    let mut given = |record: &Record| {
        let header = recordings.header_of(record.decisions.first()?.n?)?;
        let value = |raw: &str| serde_json::from_str::<Value>(raw).ok();
        Some(json!({"settings": value(header.settings.get())?, "limits": value(header.limits.get())?}))
    };
    let now = given(job)?;
    let was = earlier.iter().rev().find_map(given)?;
    Some(differing(&was, &now, &|_| false)).filter(|fields| !fields.is_empty())
}

pub(super) fn reported_call(made: &Decision, recordings: &mut Recordings) -> ReportedCall {
    let report = match made.n {
        Some(n) => recordings.report(n, made.began_ms),
        None => Err("it was not recorded".to_owned()),
    };
    ReportedCall {
        decision: made.id.clone(),
        missing: report.as_ref().err().cloned(),
        report: report.ok(),
    }
}

/// What is set aside for a key. If the file cannot be read, the host sets nothing aside either.
pub(super) fn set_aside(state_dir: &Path, guest: &str, key: &str) -> Option<SetAside> {
    let name = format!("{}.json", trueup_journal::path_component(key));
    files::read_json(&state_dir.join("quarantine").join(guest).join(name)).ok()?
}

/// Every key of a guest with any data.
pub(super) fn known(state_dir: &Path, guest: &str) -> io::Result<BTreeSet<String>> {
    let mut keys = record::keys(state_dir, guest)?;
    for root in KEPT.into_iter().skip(1) {
        let folder = trueup_journal::guest_dir(&state_dir.join(root), guest);
        keys.extend(record::names(&folder, trueup_journal::key_of)?);
    }
    Ok(keys)
}

/// How many known keys are suggested for an unknown one.
const OFFERED_MAX: usize = 3;

/// The minimum similarity of a suggested key.
const LIKENESS_MIN: f64 = 0.5;

/// Which guest to name.
fn choice<'g>(guests: impl IntoIterator<Item = &'g String>) -> String {
    let guests: Vec<&str> = guests.into_iter().map(String::as_str).collect();
    if guests.is_empty() {
        return "no decision of any guest is kept here".to_owned();
    }
    format!("name a guest with --guest, of {}", guests.join(", "))
}

/// Why there is nothing to explain about a key.
pub(super) fn nothing(state_dir: &Path, guest: &str, key: &str, recordings: &Recordings) -> anyhow::Error {
    let known = match known(state_dir, guest) {
        Ok(known) => known,
        Err(error) => return error.into(),
    };
    if known.contains(key) {
        let place = |folder: &Path| format!("; its recording is in {}", folder.display());
        let recording = recordings.folder().map(place).unwrap_or_default();
        return anyhow!("no decision about `{key}` of guest `{guest}` is kept{recording}");
    }
    let offered = match known.is_empty() {
        true => "; no decision of this guest is kept at all".to_owned(),
        false => offered(key, &known),
    };
    anyhow!("nothing is known of `{key}` of guest `{guest}`{offered}")
}

/// `; did you mean `default/web`?`, or how many keys are known.
fn offered(key: &str, known: &BTreeSet<String>) -> String {
    let nearest = nearest(key, known);
    match (nearest.is_empty(), known.len()) {
        (false, _) => format!("; did you mean {}?", nearest.join(", ")),
        (true, 0) => String::new(),
        (true, 1) => "; 1 other key is known".to_owned(),
        (true, count) => format!("; {count} other keys are known"),
    }
}

/// The most similar keys, nearest first, in backticks. A name without its namespace counts as much as the full key.
pub fn nearest<'k>(wanted: &str, known: impl IntoIterator<Item = &'k String>) -> Vec<String> {
    let likeness = |key: &String| {
        let name = key.split_once('/').map_or(key.as_str(), |(_, name)| name);
        let alike = |text: &str| strsim::normalized_damerau_levenshtein(wanted, text);
        alike(key).max(alike(name))
    };
    let mut all: Vec<(f64, &String)> = known.into_iter().map(|key| (likeness(key), key)).collect();
    all.retain(|(likeness, _)| *likeness >= LIKENESS_MIN);
    all.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
    let offered = all.into_iter().take(OFFERED_MAX);
    offered.map(|(_, key)| format!("`{key}`")).collect()
}

/// The decision is not kept, or no longer.
pub(super) fn no_such(key: &str, wanted: u64, records: &[Record]) -> anyhow::Error {
    let mut numbers = records.iter().flat_map(|it| &it.decisions).filter_map(|it| it.n);
    let first = numbers.next();
    let kept = first.map(|first| format!("{first} to {}", numbers.next_back().unwrap_or(first)));
    let kept = kept.unwrap_or_else(|| "none".to_owned());
    anyhow!("decision {wanted} of `{key}` is not kept; kept are {kept}")
}

#[cfg(test)]
mod tests {
    use trueup_capabilities::meter::Effects;

    use super::super::record::FORMAT;
    use super::*;

    fn job(began_ms: u64, cause: Cause, came: JobResult) -> Record {
        Record {
            format: FORMAT,
            key: "default/web".to_owned(),
            causes: vec![TimedCause { at_ms: began_ms, cause }],
            more_causes: 0,
            began_ms,
            took_ms: 1,
            failures_before: 0,
            decisions: Vec::new(),
            came,
            effects: Effects::default(),
        }
    }

    fn changed(field: &str, old: u32, new: u32) -> Cause {
        let object = |value| serde_json::json!({ field: value });
        Cause::Input(super::super::Input {
            kind: "Service".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: None,
            resource_version: None,
            change: super::super::ChangeKind::Changed,
            fields: differing(&object(old), &object(new), &|_| false),
        })
    }

    #[test]
    fn what_was_not_done_before_is_a_cause_of_what_another_change_began() {
        let failed = || JobResult::Failed {
            error: "away".to_owned(),
        };
        let retry = || Cause::Retry {
            failures: 1,
            error: "away".to_owned(),
        };
        let mut jobs = vec![
            job(1, Cause::Start, JobResult::True),
            job(2, changed("port", 1, 2), failed()),
            job(3, retry(), failed()),
        ];
        let said = origin(&jobs).unwrap();
        assert_eq!((said.began_ms, said.causes.len()), (2, 1));
        assert_eq!(said.causes[0].cause, changed("port", 1, 2));
        // Another change causes the next try, which does not succeed either; then the port changes once more.
        jobs.push(job(4, changed("label", 1, 2), JobResult::Interrupted));
        jobs.push(job(5, changed("port", 2, 3), failed()));
        let said = origin(&jobs).unwrap();
        assert_eq!((said.began_ms, said.causes.len()), (2, 1), "{said:?}");
        let Cause::Input(net) = &said.causes[0].cause else {
            panic!("{said:?}");
        };
        let paths: Vec<_> = net
            .fields
            .fields
            .iter()
            .map(|field| (field.path.as_str(), field.new.clone()))
            .collect();
        assert_eq!(paths, [("label", Some(2.into())), ("port", Some(3.into()))]);
        jobs.push(job(6, retry(), JobResult::True));
        assert_eq!(origin(&jobs), None, "all of it is done");
    }

    #[test]
    fn after_a_reload_the_changed_settings_are_those_of_the_headers() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("journals/lbaas/default%2Fweb");
        std::fs::create_dir_all(&folder).unwrap();
        for (n, settings) in [(0, r#"{"a":1}"#), (2, r#"{"a":1,"servers_max":2}"#)] {
            let header = format!(
                r#"{{"n":{n},"header":{{"format":1,"guest":"lbaas","version":"1","digest":"sha256:x","world":"w","host":"0","settings":{settings},"limits":{{}}}}}}"#
            );
            std::fs::write(folder.join(format!("{n}.jsonl")), header + "\n").unwrap();
        }
        let with = |n: u64, cause: Cause| {
            let identity = trueup_capabilities::Identity::default();
            let decisions = vec![Decision::new(identity, Some(n), "reconciliation.reconcile", 1)];
            let job = job(1, cause, JobResult::True);
            Record { decisions, ..job }
        };
        let mut recordings = Recordings::new(dir.path(), "lbaas", "default/web");
        let mut changed = |cause: Cause| settings_changed(&[with(1, Cause::Start)], &with(3, cause), &mut recordings);
        let fields = changed(Cause::Reloaded).unwrap().fields;
        assert_eq!(
            (fields[0].path.as_str(), &fields[0].new),
            ("settings.servers_max", &Some(2.into()))
        );
        assert_eq!((fields.len(), changed(Cause::Start)), (1, None));
    }

    #[test]
    fn a_path_that_is_no_folder_and_an_unknown_key_are_said() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = Selection {
            last: 1,
            decision: None,
            since_ms: None,
        };
        let said = |guest: &str, key: &str| explain(dir.path(), Some(guest), key, wanted).unwrap_err().to_string();
        assert_eq!(
            said("lbaas", "default/web"),
            "nothing is known of `default/web` of guest `lbaas`; no decision of this guest is kept at all"
        );
        let folder = dir.path().join("journals/lbaas/default%2Fweb");
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(
            said("lbaas", "default/web"),
            format!(
                "no decision about `default/web` of guest `lbaas` is kept; its recording is in {}",
                folder.display()
            )
        );
        assert_eq!(
            said("lbaas", "default/wbe"),
            "nothing is known of `default/wbe` of guest `lbaas`; did you mean `default/web`?"
        );
        let none = explain(&dir.path().join("x"), Some("lbaas"), "a/b", wanted)
            .unwrap_err()
            .to_string();
        assert!(none.starts_with("no state folder at "), "{none}");
    }

    #[test]
    fn the_nearest_keys_are_offered_and_a_name_alone_is_enough() {
        let known = ["default/api", "default/web", "kube-system/dns"].map(str::to_owned);
        assert_eq!(nearest("default/wbe", &known)[0], "`default/web`");
        assert_eq!(nearest("dns", &known), ["`kube-system/dns`"]);
        assert_eq!(nearest("zzzzzzzzzzzzzzzzzzzz", &known), Vec::<String>::new());
    }
}
