//! After a kill at any line of its recording, an instance completes its work: the same changes with the same ids.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use trueup_capabilities::neg::{Endpoint, NegRef};
use trueup_instance::{Instance, Instances, LastCall};
use trueup_journal::{Event, Segment, instance_dir};

use super::host::{Change, KEY, World, instances};

/// Six endpoints with one stack in each of two zones, and one that is not desired.
fn negs() -> BTreeMap<NegRef, BTreeSet<Endpoint>> {
    let neg = |zone: &str| NegRef {
        name: "web".to_owned(),
        zone: zone.to_owned(),
    };
    let endpoint = |zone: u8, host: u8| Endpoint {
        ip: format!("10.0.{zone}.{host}"),
        ipv6: String::new(),
        port: "80".to_owned(),
        node: format!("vm-{zone}-{host}"),
    };
    let mut negs: BTreeMap<NegRef, BTreeSet<Endpoint>> = [("a", 1), ("b", 2)]
        .map(|(zone, number)| (neg(zone), (1..=6).map(|host| endpoint(number, host)).collect()))
        .into();
    negs.get_mut(&neg("b")).unwrap().insert(endpoint(2, 99));
    negs
}

/// The same endpoints with both stacks, and three new ones.
fn target() -> Value {
    let endpoints = |zone: u8| -> Vec<Value> {
        let endpoint = |host: u8| {
            json!({ "ip": format!("10.0.{zone}.{host}"), "ipv6": format!("fd00::{zone}:{host}"), "port": "80",
                    "node": format!("vm-{zone}-{host}") })
        };
        (1..=8).map(endpoint).collect()
    };
    json!([
        { "location": { "zone": "a", "subnet": "s" }, "endpoints": endpoints(1) },
        { "location": { "zone": "b", "subnet": "s" }, "endpoints": endpoints(2) },
    ])
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

/// The calls of a run: a migration begins, its operations end, and a resync follows.
fn calls() -> Vec<(&'static str, Value)> {
    let sync = || ("syncer.sync", json!({ "target": target() }));
    let end = |operation: u64| {
        (
            "syncer.on-operation",
            json!({ "operation": operation, "failure": null }),
        )
    };
    vec![sync(), end(3), end(4), end(5), end(6), sync()]
}

const BEGIN_MS: u64 = 1_000;

async fn make(instance: &mut Instance, from: usize) {
    for (at, (call, args)) in calls().iter().enumerate().skip(from) {
        instance.call_at(BEGIN_MS + at as u64, call, &raw(args)).await.unwrap();
    }
}

fn folder(state_dir: &Path) -> PathBuf {
    instance_dir(&state_dir.join("journals"), "neg", KEY)
}

/// The recording without a kill: the lines and all changes.
struct Whole {
    lines: Vec<String>,
    entries: Vec<Event>,
    changes: Vec<Change>,
}

async fn whole() -> Whole {
    let dir = tempfile::tempdir().unwrap();
    let world = World::after(negs(), &[]);
    let opened = instances(dir.path())
        .open_recorded(KEY, world.backends(BEGIN_MS), true)
        .await;
    let (mut instance, LastCall { interrupted, at_ms }) = opened.unwrap();
    assert!(interrupted.is_none() && at_ms == 0);
    make(&mut instance, 0).await;
    let file = folder(dir.path()).join("0.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let segment = Segment::read(&file).unwrap();
    Whole {
        lines: text.lines().map(str::to_owned).collect(),
        // Skip the header.
        entries: segment.entries.into_iter().map(|entry| entry.event).collect(),
        changes: world.changes(),
    }
}

fn is_change(event: &Event) -> bool {
    matches!(event, Event::Ask(ask) if ["api.ensure", "api.attach", "api.detach"].contains(&ask.name.as_str()))
}

fn count(events: &[Event], of: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| of(event)).count()
}

/// The number of calls that ended in these events.
fn ended(events: &[Event]) -> usize {
    count(events, |event| matches!(event, Event::Ending(_)))
}

/// A process that was killed after this many entries. `done`: the action of the next line had already happened.
fn killed(whole: &Whole, entries: usize, done: bool, state_dir: &Path) -> Arc<World> {
    let folder = folder(state_dir);
    std::fs::create_dir_all(&folder).unwrap();
    let mut text = whole.lines[..=entries].join("\n");
    text.push('\n');
    std::fs::write(folder.join("0.jsonl"), text).unwrap();
    let changed = count(&whole.entries[..entries], is_change) + usize::from(done);
    World::after(negs(), &whole.changes[..changed])
}

/// Checks all changes by a killed process and its successors. For each entry in `again`, one more process is killed
/// while it completes the work, by cutting its recording.
async fn check(whole: &Whole, entries: usize, again: &[usize]) {
    for done in [false, true] {
        if done && !whole.entries.get(entries).is_some_and(is_change) {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let world = killed(whole, entries, done, dir.path());
        let complete = ended(&whole.entries[..entries]);
        let is_inside = count(&whole.entries[..entries], |event| matches!(event, Event::Call(_))) > complete;
        for lines in again {
            finish_and_be_killed(dir.path(), &world, *lines).await;
        }
        let (mut instance, last) = instances(dir.path())
            .open_recorded(KEY, world.backends(9_000), true)
            .await
            .unwrap();
        assert!(
            !again.is_empty() || last.interrupted.is_some() == is_inside,
            "after {entries}"
        );
        if let Some(interrupted) = last.interrupted {
            instances(dir.path())
                .finish(KEY, &mut instance, interrupted)
                .await
                .unwrap();
        }
        let finished = complete + usize::from(is_inside);
        let upto = whole.entries.iter().scan(0, |calls, event| {
            let before = *calls;
            *calls += usize::from(matches!(event, Event::Ending(_)));
            Some((before, event))
        });
        let expected = upto
            .filter(|(calls, event)| *calls < finished && is_change(event))
            .count();
        assert_eq!(
            world.changes(),
            whole.changes[..expected],
            "after {entries}, done {done}, {again:?}"
        );
        make(&mut instance, finished).await;
        assert_eq!(
            world.changes(),
            whole.changes,
            "after {entries}, done {done}, {again:?}: and all that follows"
        );
        let (mut reopened, last) = instances(dir.path())
            .open_recorded(KEY, world.backends(9_000), true)
            .await
            .unwrap();
        assert!(last.interrupted.is_none());
        assert_eq!(
            state(&mut instance).await,
            state(&mut reopened).await,
            "and its state is in its recording"
        );
    }
}

async fn state(instance: &mut Instance) -> Value {
    serde_json::from_str(&instance.snapshot().await.unwrap()).unwrap()
}

/// Runs one more process, which is killed after recording this many lines, at least its header.
async fn finish_and_be_killed(state_dir: &Path, world: &Arc<World>, lines: usize) {
    let folder = folder(state_dir);
    let reopened = instances(state_dir)
        .open_recorded(KEY, world.backends(5_000), true)
        .await;
    let (mut instance, last) = reopened.unwrap();
    let Some(interrupted) = last.interrupted else {
        return;
    };
    let kept = folder.join("interrupted.json");
    let text = std::fs::read(&kept).unwrap();
    instances(state_dir)
        .finish(KEY, &mut instance, interrupted)
        .await
        .unwrap();
    drop(instance);
    assert!(!kept.exists(), "it has ended");
    std::fs::write(&kept, text).unwrap();
    let newest = trueup_journal::segment_files(&folder).unwrap().pop().unwrap();
    let text = std::fs::read_to_string(&newest.path).unwrap();
    let left: Vec<&str> = text.lines().take(lines.max(1)).collect();
    std::fs::write(&newest.path, left.join("\n") + "\n").unwrap();
}

#[tokio::test]
async fn after_a_kill_at_any_line_it_makes_exactly_the_same_changes_and_ids() {
    let whole = whole().await;
    assert!(whole.changes.len() > 6, "{:?}", whole.changes);
    for entries in 0..whole.entries.len() {
        check(&whole, entries, &[]).await;
    }
}

#[tokio::test]
async fn a_call_that_ended_without_recording_is_not_run_again() {
    let whole = whole().await;
    let dir = tempfile::tempdir().unwrap();
    let world = killed(&whole, 3, false, dir.path());
    let start = async |record| {
        let instances = Instances {
            record,
            ..instances(dir.path())
        };
        let opened = instances.open_recorded(KEY, world.backends(9_000), true).await;
        (instances, opened.unwrap())
    };
    let (_, killed_again) = start(true).await;
    assert!(killed_again.1.interrupted.is_some());
    drop(killed_again);
    let (instances, (mut reopened, last)) = start(false).await;
    let interrupted = last.interrupted.unwrap();
    let finished = instances.finish(KEY, &mut reopened, interrupted).await;
    finished.unwrap();
    drop(reopened);
    for _ in 0..2 {
        assert!(start(true).await.1.1.interrupted.is_none());
    }
}

#[tokio::test]
async fn a_damaged_recording_that_holds_state_is_an_error() {
    let whole = whole().await;
    let dir = tempfile::tempdir().unwrap();
    let world = killed(&whole, 3, false, dir.path());
    let file = folder(dir.path()).join("0.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"ask\"", "\"aks\"", 1)).unwrap();
    let opened = instances(dir.path())
        .open_recorded(KEY, world.backends(9_000), true)
        .await;
    let error = opened.err().unwrap().to_string();
    let line = text.lines().position(|line| line.contains("\"ask\"")).unwrap() + 1;
    assert!(
        error.starts_with(&format!("`{}` line {line} is damaged: ", file.display())),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn so_it_does_where_it_is_killed_again_while_it_finishes(at in any::<prop::sample::Index>(),
                                                             again in prop::collection::vec(0..16_usize, 1..4)) {
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        threads.block_on(async {
            let whole = whole().await;
            check(&whole, at.index(whole.entries.len()), &again).await;
        });
    }
}
