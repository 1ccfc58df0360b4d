//! Recordings, with the real binary: they replay identically, and a replay finds every change that matters.
//!
//! Each test works on copies of one run's recordings; `quickstart.rs` tests the run itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use support::{Engine, Ran, Site, trueup};

/// The recording of `default/api`: two runs, of which the second had nothing to do. The guest looked at the created
/// objects before they had settled: if the machine stalls meanwhile, they take longer to settle.
static API: LazyLock<Recording> = LazyLock::new(|| {
    let settles = ["200", "1000", "5000"];
    let looked_in_time = |recording: &Recording| {
        let get = recording.ask(recording.ask(0, "api.create"), "api.get");
        recording.lines[get]["answer"][0]["Ok"]["state"] == "Pending"
    };
    let mut recordings = settles.iter().map(|settle_ms| recorded(settle_ms));
    recordings.find(looked_in_time).expect("a look before things settle")
});

fn recorded(settle_ms: &str) -> Recording {
    let engine = Engine::start(&["--settle-ms", settle_ms]);
    let site = Site::against(&engine);
    site.run_once().exits(0);
    site.run_once().exits(0);
    let all = site.journals();
    assert_eq!(all.len(), 3);
    Recording::read(&all[0])
}

/// The lines of one recording; tests change copies.
#[derive(Clone)]
struct Recording {
    lines: Vec<Value>,
}

impl Recording {
    fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(
            lines.iter().enumerate().all(|(n, line)| line["n"] == json!(n)),
            "the first segment, without gaps"
        );
        Self { lines }
    }

    /// The first entry at or after `from` with this question.
    fn ask(&self, from: usize, name: &str) -> usize {
        self.find(from, |line| line["ask"] == name)
    }

    /// The first entry at or after `from` that ends a call with a result.
    fn result(&self, from: usize) -> usize {
        self.find(from, |line| line.get("result").is_some())
    }

    fn find(&self, from: usize, is_it: impl Fn(&Value) -> bool) -> usize {
        from + self.lines[from..].iter().position(is_it).unwrap()
    }

    /// A copy with one entry changed.
    fn with(&self, n: usize, change: impl FnOnce(&mut Value)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.lines[n]);
        assert_ne!(changed.lines[n], self.lines[n], "the entry must be another one");
        changed
    }

    fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn replay_one(recording: &Recording) -> Ran {
    replay_text(&recording.text())
}

fn replay_text(text: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    replay(&[written(&folder, "recording.jsonl", text)], &[])
}

fn written(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let file = folder.path().join(name);
    fs::write(&file, text).unwrap();
    file
}

fn replay(files: &[PathBuf], flags: &[&str]) -> Ran {
    let files = files.iter().map(|file| file.as_os_str());
    let flags = flags.iter().map(std::ffi::OsStr::new);
    trueup(
        std::iter::once(std::ffi::OsStr::new("replay"))
            .chain(flags)
            .chain(files),
    )
}

/// Asserts that a replay of this recording diverges at entry `n`, and names the difference.
#[track_caller]
fn diverges(recording: &Recording, n: usize, named: &str) {
    let ran = replay_one(recording).exits(3);
    let first = ran.stdout.lines().next().unwrap_or_default();
    assert!(
        first.contains(&format!(": diverged at entry {n}")),
        "must diverge at {n}:\n{ran}"
    );
    assert!(ran.stdout.contains(named), "must name `{named}`:\n{ran}");
}

/// Another value of the same kind.
fn another(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_u64().unwrap() + 1),
        Value::String(text) => json!(format!("{text}-edited")),
        Value::Bool(truth) => json!(!truth),
        other => panic!("{other} is no leaf"),
    }
}

/// A path to the last leaf of a value: the arguments differ only there.
fn last_leaf(value: &Value) -> Option<String> {
    let step = |key: String, below: &Value| last_leaf(below).map(|path| format!("/{key}{path}"));
    match value {
        Value::Object(fields) => fields.iter().rev().find_map(|(key, below)| step(key.clone(), below)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, below)| step(index.to_string(), below)),
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(String::new()),
    }
}

#[test]
fn recordings_of_earlier_versions_replay_identically() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let mut files = Vec::new();
    collect(&corpus, &mut files);
    assert!(files.len() >= 29, "recordings stay for good: {files:?}");
    let ran = replay(&files, &[]).exits(0);
    let identical = ran.stdout.lines().filter(|line| line.contains(": identical: "));
    assert_eq!(identical.count(), files.len(), "{ran}");
}

/// The recordings below this folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "jsonl") {
            files.push(path);
        }
    }
}

#[test]
fn the_recordings_of_a_run_replay_identically_twice() {
    let engine = Engine::start(&["--settle-ms", "20"]);
    let site = Site::against(&engine);
    site.run_once().exits(0);
    let requests = engine.requests();
    let journals = site.journals();
    let before: Vec<Vec<u8>> = journals.iter().map(|file| fs::read(file).unwrap()).collect();
    assert_eq!(journals.len(), 3);

    let once = replay(&journals, &[]).exits(0);
    let twice = replay(&journals, &[]).exits(0);
    assert_eq!(
        once.stdout
            .lines()
            .filter(|line| line.contains(": identical: 2 calls, "))
            .count(),
        3,
        "{once}"
    );
    assert_eq!(once.stdout, twice.stdout);
    let after: Vec<Vec<u8>> = journals.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(before == after, "a replay writes nothing");
    assert_eq!(engine.requests(), requests, "a replay asks no backend");
}

#[test]
fn every_edited_argument_diverges_at_its_entry() {
    let folder = tempfile::tempdir().unwrap();
    let mut edited = Vec::new();
    for (n, line) in API
        .lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.get("ask").is_some())
    {
        let Some(leaf) = last_leaf(&line["args"]) else { continue };
        let path = format!("/args{leaf}");
        let recording = API.with(n, |line| {
            let value = line.pointer_mut(&path).unwrap();
            *value = another(value);
        });
        edited.push((n, leaf, written(&folder, &format!("{n}.jsonl"), &recording.text())));
    }
    assert!(
        edited.len() > 15,
        "there are enough questions to edit: {}",
        edited.len()
    );

    let files: Vec<PathBuf> = edited.iter().map(|(_, _, file)| file.clone()).collect();
    let outcomes = replay(&files, &["--output", "json"]).exits(3).json();
    for ((n, leaf, file), outcome) in edited.iter().zip(outcomes.as_array().unwrap()) {
        assert_eq!(outcome["file"], file.display().to_string());
        assert_eq!(outcome["outcome"], "diverged", "{leaf} of entry {n}: {outcome}");
        assert_eq!(outcome["n"], json!(n), "{leaf}: {outcome}");
        assert_eq!(outcome["divergence"]["kind"], "args");
        assert_eq!(
            outcome["divergence"]["differences"].as_array().unwrap().len(),
            1,
            "the field and no other: {outcome}"
        );
    }
}

#[test]
fn an_edited_argument_is_named_by_its_field() {
    let n = API.ask(0, "api.create");
    let recording = API.with(n, |line| {
        line["args"]["specs"][0]["Backend"]["load_balancer"] = json!("lb-2")
    });
    let ran = replay_one(&recording).exits(3);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{ran}");
    assert!(
        lines[0].ends_with(&format!("recording.jsonl: diverged at entry {n}: `api.create`")),
        "{ran}"
    );
    assert_eq!(
        lines[1],
        "  args.specs[0].Backend.load_balancer: recorded \"lb-2\", replayed \"lb-1\""
    );
}

#[test]
fn an_edited_result_diverges_at_its_entry() {
    let reconciled = API.result(0);
    diverges(
        &API.with(reconciled, |line| line["result"]["Ok"]["created"] = json!(9)),
        reconciled,
        "created",
    );
    let status = API.result(reconciled + 1);
    diverges(
        &API.with(status, |line| line["result"]["Ok"][0]["ports"][0] = json!(80)),
        status,
        "ports",
    );
    let error = API.with(reconciled, |line| line["result"] = json!({"Err": {"Api": "NotFound"}}));
    diverges(&error, reconciled, "result");
}

#[test]
fn an_edited_answer_diverges_at_the_first_later_entry_that_depends_on_it() {
    // Another random number gives another pause: the next question.
    let random = API.ask(0, "random.next-u64");
    assert_eq!(API.lines[random + 1]["ask"], "clock.sleep-ms");
    // From one end of the range to the other, or a pause of whole milliseconds may stay the same.
    let opposite = |drawn: &Value| {
        if drawn.as_u64().unwrap() >> 63 == 0 {
            u64::MAX
        } else {
            0
        }
    };
    diverges(
        &API.with(random, |line| line["answer"] = json!(opposite(&line["answer"]))),
        random + 1,
        "duration_ms",
    );

    // Another identifier of a created object: the guest asks for the clock first, and then for that object.
    let create = API.ask(0, "api.create");
    assert_eq!(API.lines[create + 1]["ask"], "clock.now-ms");
    assert_eq!(API.lines[create + 2]["ask"], "api.get");
    let other_identifier = API.with(create, |line| line["answer"][0]["Ok"]["identifier"] = json!("0123"));
    diverges(&other_identifier, create + 2, "identifier");

    // It is already ready: no pause follows.
    let get = API.ask(create, "api.get");
    assert_eq!(API.lines[get]["answer"][0]["Ok"]["state"], "Pending");
    assert_eq!(API.lines[get + 1]["ask"], "random.next-u64");
    diverges(
        &API.with(get, |line| line["answer"][0]["Ok"]["state"] = json!("Ok")),
        get + 1,
        "clock.now-ms",
    );

    // Another load balancer in the list of the call for the status: its own result, at once.
    let status = API.find(0, |line| line["call"] == "reconciliation.status");
    let list = API.ask(status, "api.list-tagged");
    let result = API.result(list);
    assert_eq!(result, list + 1);
    let other_port = API.with(list, |line| {
        let objects = line["answer"]["Ok"].as_array_mut().unwrap();
        let bind = objects
            .iter_mut()
            .find_map(|object| object["spec"].get_mut("Bind"))
            .unwrap();
        bind["port"] = json!(444);
    });
    diverges(&other_port, result, "ports");
}

#[test]
fn an_edited_answer_that_nothing_depends_on_changes_nothing() {
    let clock = API.ask(0, "clock.now-ms");
    let recording = API.with(clock, |line| line["answer"] = another(&line["answer"]));
    let ran = replay_one(&recording).exits(0);
    assert!(
        ran.stdout.contains(": identical: "),
        "time is measured here, and nothing is decided by it: {ran}"
    );
}

#[test]
fn an_answer_that_is_none_is_damage_and_no_difference() {
    let list = API.ask(0, "api.list-tagged");
    let damaged = API.with(list, |line| line["answer"] = json!({"Perhaps": []}));
    let folder = tempfile::tempdir().unwrap();
    let file = written(&folder, "recording.jsonl", &damaged.text());
    for command in [
        &["replay"][..],
        &["replay", "--guest", "lbaas@2"],
        &["journal", "to-scenario"],
    ] {
        let args = command.iter().map(std::ffi::OsStr::new);
        let ran = trueup(args.chain([file.as_os_str()])).exits(2);
        let named = format!(
            "recording.jsonl` line {} is damaged: the answer to `api.list-tagged` can't be read: unknown variant",
            list + 1
        );
        assert!(ran.stderr.contains(&named) && ran.stderr.len() < 500, "{ran}");
        assert_eq!((ran.stdout.as_str(), ran.stderr.lines().count()), ("", 1), "{ran}");
    }
}

#[test]
fn what_is_recorded_and_not_asked_is_counted() {
    // A missing load balancer ends the call at once: all later questions are left over.
    let first = API.ask(0, "api.load-balancer");
    let ran = replay_one(&API.with(first, |line| line["answer"] = json!({"Err": "NotFound"}))).exits(3);
    let left = API.result(0) - first - 1;
    assert!(
        ran.stdout
            .contains(&format!(": {left} entries unused from entry {}", first + 1)),
        "{ran}"
    );
    assert!(ran.stdout.contains("NotFound"), "and how the call ended instead: {ran}");
}

#[test]
fn a_removed_line_is_an_error_that_names_file_and_line() {
    for removed in [1, API.ask(0, "api.create"), API.result(0), API.lines.len() - 2] {
        let mut recording = API.clone();
        recording.lines.remove(removed);
        let ran = replay_one(&recording).exits(2);
        // The unexpected line is the one after the gap, which is now in its place.
        let named = format!("recording.jsonl` line {} is damaged", removed + 1);
        assert!(ran.stderr.contains(&named), "`{named}`:\n{ran}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn a_damaged_line_is_an_error_that_names_file_and_line() {
    let text = API.text();
    let third = text.lines().nth(2).unwrap();
    for damage in [&third[..third.len() / 2], "", "null", "{\"n\":2}"] {
        let damaged = text.replacen(third, damage, 1);
        let ran = replay_text(&damaged).exits(2);
        assert!(
            ran.stderr.contains("recording.jsonl` line 3 is damaged"),
            "`{damage}`:\n{ran}"
        );
    }
    for empty in ["", "{\"n\":0,\"header\""] {
        let ran = replay_text(empty).exits(2);
        assert!(ran.stderr.contains("holds no entry"), "{ran}");
    }
    let missing = trueup(["replay", "/nowhere/0.jsonl"]).exits(2);
    assert!(missing.stderr.contains("/nowhere/0.jsonl"), "{missing}");
}

#[test]
fn a_torn_last_line_is_cut_off_and_said() {
    let text = API.text();
    let last = API.lines.len();
    let ran = replay_text(&text[..text.len() - 10]).exits(0);
    assert!(ran.stdout.contains(": identical as far as recorded: "), "{ran}");
    let said = ran.said("warning");
    assert_eq!(said.len(), 1, "{ran}");
    assert!(
        said[0].contains("recording.jsonl") && said[0].contains(&format!("line {last}")),
        "{ran}"
    );
}

#[test]
fn a_recording_that_ends_inside_a_call_is_compared_as_far_as_it_goes() {
    let reconciled = API.result(0);
    for kept in [2, 5, API.ask(0, "clock.sleep-ms") + 1, reconciled] {
        let ran = replay_one(&Recording {
            lines: API.lines[..kept].to_vec(),
        })
        .exits(0);
        let said = format!(": identical as far as recorded: 1 call, {kept} entries; ");
        assert!(ran.stdout.contains(&said), "`{said}`:\n{ran}");
        assert_eq!(ran.stderr, "");
    }
    // The existing entries still count.
    let create = API.ask(0, "api.create");
    let changed = API.with(create, |line| line["args"]["tags"][0] = json!("another"));
    diverges(
        &Recording {
            lines: changed.lines[..reconciled].to_vec(),
        },
        create,
        "tags",
    );
    // And between two calls nothing is missing.
    let ran = replay_one(&Recording {
        lines: API.lines[..=reconciled].to_vec(),
    })
    .exits(0);
    assert!(ran.stdout.contains(": identical: 1 call, "), "{ran}");
}

#[test]
fn another_guest_diverges_where_it_differs_and_its_digest_is_shown() {
    let engine = Engine::start(&["--settle-ms", "20"]);
    let site = Site::against(&engine);
    // Version 1 destroys failed resources, and version 2 resets them.
    engine.fault(&json!({"path": "/api/LBaaS/v1/backend.json/*", "fail_next": 1}));
    site.run_once().exits(0);
    let journals = site.journals();
    replay(&journals, &[]).exits(0);

    let ran = replay(&journals, &["--guest", "lbaas@2"]).exits(3);
    let notes = ran.said("recorded by another guest (sha256:");
    assert!(
        notes.len() == 1 && notes[0].contains(" and 2 others were recorded by "),
        "{ran}"
    );
    let diverged = ran.stdout.lines().filter(|line| line.contains(": diverged at entry "));
    let identical = ran.stdout.lines().filter(|line| line.contains(": identical"));
    assert_eq!(
        (diverged.count(), identical.count()),
        (1, 2),
        "the other digest alone is no divergence: {ran}"
    );
    let shown = ["recorded: api.destroy", "asked:    api.reset"];
    assert!(shown.iter().all(|shown| ran.stdout.contains(shown)), "{ran}");

    let outcomes = replay(&journals, &["--guest", "lbaas@2", "--output", "json"])
        .exits(3)
        .json();
    for outcome in outcomes.as_array().unwrap() {
        assert_eq!(outcome["guest"], "lbaas@2");
        assert_ne!(outcome["recorded_digest"], outcome["replayed_digest"]);
    }
}

#[test]
fn show_filters_by_call_and_speaks_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&folder, "api.jsonl", &API.text());
    let show = |flags: &[&str]| trueup([&["journal", "show"], flags, &[file.to_str().unwrap()]].concat()).exits(0);
    let all = show(&[]);
    // Three lines about the file come first; the header is one of the entries.
    assert_eq!(all.stdout.lines().count(), 3 + API.lines.len() - 1, "{all}");

    let numbers = |shown: &Ran| -> Vec<usize> {
        shown
            .stdout
            .lines()
            .skip(3)
            .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
            .collect()
    };
    let entries = |is_it: &dyn Fn(&Value) -> bool| -> Vec<usize> {
        let found = API.lines.iter().enumerate().filter(|(_, line)| is_it(line));
        found.map(|(n, _)| n).collect()
    };
    let asks = |name: &'static str| move |line: &Value| line["ask"] == name;
    assert_eq!(numbers(&show(&["--call", "api.create"])), entries(&asks("api.create")));
    let both = show(&["--call", "api.create", "--call", "random"]);
    assert_eq!(
        numbers(&both),
        entries(&|line| asks("api.create")(line) || asks("random.next-u64")(line))
    );
    // A call goes with its result.
    let calls = API
        .lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line["call"] == "reconciliation.status");
    let with_results: Vec<usize> = calls.flat_map(|(n, _)| [n, API.result(n)]).collect();
    assert_eq!(numbers(&show(&["--call", "reconciliation.status"])), with_results);
    assert_eq!(numbers(&show(&["--call", "nothing-like-it"])), Vec::<usize>::new());

    let json = show(&["--output", "json"]).json();
    assert_eq!(json.as_array(), Some(&API.lines), "every line as it is in the file");
    let json = show(&["--output", "json", "--call", "api.create"]).json();
    let created: Vec<Value> = entries(&asks("api.create"))
        .into_iter()
        .map(|n| API.lines[n].clone())
        .collect();
    assert_eq!(json.as_array().unwrap()[1..], created, "after the header");

    let create = API.ask(0, "api.create").to_string();
    let line_of = |shown: &Ran| {
        shown
            .stdout
            .lines()
            .find(|line| line.trim_start().starts_with(&create))
            .unwrap()
            .len()
    };
    assert!(
        line_of(&show(&["--full"])) > line_of(&all),
        "in full where it is asked for"
    );
}
