//! Opening instances: what survives a kill, what starts a new segment, where state moves, and what a run interrupts.
//!
//! The guest `misbehaving` counts its calls: `rounds` in its report reveals lost and repeated calls.
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use trueup_base::clock::VirtualClock;
use trueup_capabilities::Backends;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::meter::Limits;
use trueup_config::Config;
use trueup_instance::{Instance, Instances, Program, replay};
use trueup_journal::{Ending, Event, Files, Options, Outcome, Segment, Tally, instance_dir, segment_files};
use trueup_registry::Registry;
use trueup_runtime::run;
use trueup_worlds::sections;

use crate::misbehaving;
use crate::versions::{ENGINE, program};

const KEY: &str = "default/web";
/// The name in `[guests.lbaas]`: stored data is found by this name, whatever the guest is.
const NAME: &str = "lbaas";

static COMPONENT: LazyLock<Vec<u8>> = LazyLock::new(|| misbehaving::built("1", misbehaving::guests::build));
static VERSION_1: LazyLock<Arc<Program>> = LazyLock::new(|| program(&COMPONENT));
static VERSION_2: LazyLock<Arc<Program>> =
    LazyLock::new(|| program(&misbehaving::built("2", misbehaving::guests::build)));

/// Instances of version 1 that only count, recorded under `state_dir`.
fn instances(state_dir: &Path) -> Instances {
    Instances {
        name: NAME,
        engine: ENGINE.clone(),
        program: Arc::clone(&VERSION_1),
        recorded: Arc::new(|_| None),
        settings: json!({}),
        afresh: false,
        grants: Grants::everything(),
        limits: Limits::default(),
        initial: "0".to_owned(),
        state_dir: state_dir.to_owned(),
        record: true,
        journal: Options::default(),
        files: Files::default(),
    }
}

async fn open(instances: &Instances) -> Instance {
    let backends = Backends {
        clock: Arc::new(VirtualClock::new(0)),
        ..Backends::default()
    };
    instances.open(KEY, backends).await.unwrap()
}

fn wish() -> Box<RawValue> {
    to_raw_value(&json!({ "desired": {
        "load_balancers": [], "name_suffix": "web", "service_uid": "uid", "external_addresses": [],
        "ports": [], "servers": [], "backoff_steps": 1,
    } }))
    .unwrap()
}

/// Calls `reconcile` once. Returns the number of calls so far.
async fn count(instance: &mut Instance) -> u64 {
    let answer = instance.call("reconciliation.reconcile", &wish()).await.unwrap();
    let answer: serde_json::Value = serde_json::from_str(answer.get()).unwrap();
    answer["Ok"]["rounds"].as_u64().unwrap()
}

/// Makes one call that changes no state.
async fn look(instance: &mut Instance) {
    instance.call("reconciliation.reconcile-check", &wish()).await.unwrap();
}

fn folder(state_dir: &Path, kind: &str) -> PathBuf {
    instance_dir(&state_dir.join(kind), NAME, KEY)
}

fn segments(state_dir: &Path, kind: &str) -> Vec<Segment> {
    let folder = folder(state_dir, kind);
    if !folder.exists() {
        return Vec::new();
    }
    segment_files(&folder)
        .unwrap()
        .iter()
        .map(|file| Segment::read(&file.path).unwrap())
        .collect()
}

async fn outcome(segment: Segment) -> Outcome {
    replay::replay(&ENGINE, &VERSION_1, segment, replay::Options::default())
        .await
        .unwrap()
}

/// Every recorded segment replays to its end, with the expected numbers of calls.
async fn assert_replays(state_dir: &Path, expected: &[u64]) {
    let mut calls = Vec::new();
    for segment in segments(state_dir, "journals") {
        match outcome(segment).await {
            Outcome::Identical(Tally { calls: replayed, .. }) => calls.push(replayed),
            other => panic!("{other}"),
        }
    }
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn wherever_a_kill_cuts_the_recording_the_calls_that_ended_are_there() {
    let whole = tempfile::tempdir().unwrap();
    let mut instance = open(&instances(whole.path())).await;
    for expected in 1..=3 {
        assert_eq!(count(&mut instance).await, expected);
    }
    drop(instance);
    let [file] = <[_; 1]>::try_from(segment_files(&folder(whole.path(), "journals")).unwrap()).unwrap();
    let bytes = std::fs::read(&file.path).unwrap();
    let line_ends: Vec<usize> = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .collect();
    // A header, and for each call its begin, its question and its end.
    assert_eq!(line_ends.len(), 10);

    // At the end of each line, and in the middle of the next.
    let cuts = std::iter::once(0)
        .chain(line_ends.iter().copied())
        .flat_map(|end| [end, (end + 7).min(bytes.len())]);
    for cut in cuts {
        let ended = line_ends.iter().filter(|end| **end <= cut).count().saturating_sub(1) / 3;
        let dir = tempfile::tempdir().unwrap();
        let journal = folder(dir.path(), "journals");
        std::fs::create_dir_all(&journal).unwrap();
        std::fs::write(journal.join("0.jsonl"), &bytes[..cut]).unwrap();

        let mut instance = open(&instances(dir.path())).await;
        assert_eq!(count(&mut instance).await, ended as u64 + 1, "cut at {cut}");
        drop(instance);
        let mut instance = open(&instances(dir.path())).await;
        assert_eq!(
            count(&mut instance).await,
            ended as u64 + 2,
            "cut at {cut}, and opened once more"
        );
        drop(instance);
        for segment in segments(dir.path(), "journals") {
            assert!(outcome(segment).await.is_identical(), "cut at {cut}");
        }
    }
}

#[tokio::test]
async fn a_stateless_world_goes_on_beside_a_damaged_recording() {
    let dir = tempfile::tempdir().unwrap();
    let mut instance = open(&instances(dir.path())).await;
    count(&mut instance).await;
    drop(instance);
    let file = folder(dir.path(), "journals").join("0.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"ask\"", "\"aks\"", 1)).unwrap();
    let damaged = std::fs::read(&file).unwrap();
    assert_eq!(
        count(&mut open(&instances(dir.path())).await).await,
        1,
        "it begins anew"
    );
    assert_eq!(std::fs::read(file.with_extension("jsonl.damaged")).unwrap(), damaged);
    let firsts: Vec<u64> = segments(dir.path(), "journals")
        .iter()
        .map(|segment| segment.first)
        .collect();
    assert_eq!(firsts, [text.lines().count() as u64], "no number is used twice");
    assert_eq!(count(&mut open(&instances(dir.path())).await).await, 2);
}

#[tokio::test]
async fn where_nothing_changed_the_segment_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        look(&mut open(&instances(dir.path())).await).await;
    }
    assert_replays(dir.path(), &[3]).await;
    // A state other than the header's, other settings, other limits: each starts its own segment.
    count(&mut open(&instances(dir.path())).await).await;
    assert_replays(dir.path(), &[4]).await;
    look(&mut open(&instances(dir.path())).await).await;
    look(
        &mut open(&Instances {
            settings: json!({ "amount": 1 }),
            ..instances(dir.path())
        })
        .await,
    )
    .await;
    let limits = Limits {
        imports_per_call: 7,
        ..Limits::default()
    };
    look(
        &mut open(&Instances {
            limits,
            ..instances(dir.path())
        })
        .await,
    )
    .await;
    assert_replays(dir.path(), &[4, 1, 1, 1]).await;
}

#[tokio::test]
async fn a_guest_that_asks_in_its_init_begins_a_segment_with_each_start() {
    let dir = tempfile::tempdir().unwrap();
    let asking = || Instances {
        settings: json!({ "does": "ask-at-start" }),
        ..instances(dir.path())
    };
    for _ in 0..3 {
        look(&mut open(&asking()).await).await;
    }
    count(&mut open(&asking()).await).await;
    assert_eq!(count(&mut open(&asking()).await).await, 2);
    assert_replays(dir.path(), &[1, 1, 1, 1, 1]).await;
}

#[tokio::test]
async fn after_a_trap_a_new_segment_begins_with_the_state_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut instance = open(&instances(dir.path())).await;
    assert_eq!(count(&mut instance).await, 1);
    drop(instance);
    let panicking = Instances {
        settings: json!({ "does": "panic" }),
        ..instances(dir.path())
    };
    for _ in 0..2 {
        let mut instance = open(&panicking).await;
        look(&mut instance).await;
        instance.call("reconciliation.reconcile", &wish()).await.unwrap_err();
    }
    assert_eq!(count(&mut open(&instances(dir.path())).await).await, 2);
    let snapshots: Vec<_> = segments(dir.path(), "journals")
        .into_iter()
        .map(|segment| segment.header.snapshot)
        .collect();
    assert_eq!(snapshots, ["0", "1", "1", "1"].map(|text| Some(text.to_owned())));
    assert_replays(dir.path(), &[1, 2, 2, 1]).await;
}

#[tokio::test]
async fn state_moves_where_recording_is_switched_off_and_on() {
    let dir = tempfile::tempdir().unwrap();
    let unrecorded = || Instances {
        record: false,
        ..instances(dir.path())
    };
    assert_eq!(count(&mut open(&instances(dir.path())).await).await, 1);
    assert_eq!(count(&mut open(&unrecorded()).await).await, 2);
    let journals = std::fs::read(folder(dir.path(), "journals").join("0.jsonl")).unwrap();
    for expected in 3..=5 {
        assert_eq!(count(&mut open(&unrecorded()).await).await, expected);
        assert_eq!(
            segments(dir.path(), "instances").len(),
            1,
            "what a restart needs, and no more"
        );
    }
    assert_eq!(
        std::fs::read(folder(dir.path(), "journals").join("0.jsonl")).unwrap(),
        journals,
        "unchanged meanwhile"
    );
    assert_eq!(count(&mut open(&instances(dir.path())).await).await, 6);
    assert!(
        !folder(dir.path(), "instances").exists(),
        "a copy that grows old must not be taken for the newest"
    );
    assert_eq!(count(&mut open(&unrecorded()).await).await, 7, "and off again");
    assert_replays(dir.path(), &[1, 1]).await;
}

/// The log of this thread.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Logged {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

#[tokio::test]
async fn a_guest_that_decides_differently_continues_from_the_snapshot_and_warns() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let dir = tempfile::tempdir().unwrap();
    count(&mut open(&instances(dir.path())).await).await;
    assert_eq!(
        count(&mut open(&instances(dir.path())).await).await,
        2,
        "in a segment whose snapshot is 1"
    );
    assert_eq!(logged.take(), "", "nothing to warn of so far");

    let newer = || Instances {
        program: Arc::clone(&VERSION_2),
        ..instances(dir.path())
    };
    assert_eq!(
        count(&mut open(&newer()).await).await,
        2,
        "from the snapshot: version 2 can't repeat the call since"
    );
    let warning = logged.take();
    let expected = "the calls since the last snapshot can't be repeated by guest `misbehaving@2` (diverged at entry";
    assert!(
        warning.contains("WARN") && warning.contains(expected) && warning.contains("going on from the snapshot"),
        "{warning}"
    );
    assert_eq!(count(&mut open(&newer()).await).await, 3, "its own calls it can repeat");
    assert_eq!(logged.take(), "");
}

#[tokio::test]
async fn a_version_that_begins_afresh_takes_its_own_state_alone() {
    let dir = tempfile::tempdir().unwrap();
    let one = instances(dir.path());
    let two = Instances {
        program: Arc::clone(&VERSION_2),
        afresh: true,
        ..instances(dir.path())
    };
    let mut old = open(&one).await;
    assert_eq!((count(&mut old).await, count(&mut old).await), (1, 2));
    // Handed over while it runs, and opened again from its own recording.
    let mut new = two
        .take_over(KEY, old, async || Ok(()))
        .await
        .map_err(|(_, why)| why)
        .unwrap();
    assert_eq!(count(&mut new).await, 1);
    drop(new);
    assert_eq!(count(&mut open(&two).await).await, 2, "its own state is read");
    // Opened from the recording of another instance.
    let other = tempfile::tempdir().unwrap();
    assert_eq!(count(&mut open(&instances(other.path())).await).await, 1);
    let two = Instances {
        state_dir: other.path().to_owned(),
        ..two
    };
    assert_eq!(count(&mut open(&two).await).await, 1);
}

#[tokio::test]
async fn segments_end_by_entries_and_by_size_between_calls() {
    for (options, expected) in [
        // A call has three entries: the fourth is in the middle of the second call.
        (
            Options {
                segment_entries: 4,
                ..Options::default()
            },
            [2, 2, 1],
        ),
        (
            Options {
                segment_bytes: 500,
                ..Options::default()
            },
            [2, 2, 1],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let instances = Instances {
            journal: options,
            ..instances(dir.path())
        };
        let mut instance = open(&instances).await;
        for expected in 1..=5 {
            assert_eq!(count(&mut instance).await, expected);
            instance = instances.rotate_if_long(instance).await.unwrap();
        }
        drop(instance);
        assert_replays(dir.path(), &expected).await;
        let snapshots: Vec<_> = segments(dir.path(), "journals")
            .into_iter()
            .map(|segment| segment.header.snapshot)
            .collect();
        assert_eq!(snapshots, ["0", "2", "4"].map(|text| Some(text.to_owned())));
        assert_eq!(count(&mut open(&instances).await).await, 6);
    }
}

#[tokio::test]
async fn recorded_arguments_with_a_key_that_nothing_knows_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    count(&mut open(&instances(dir.path())).await).await;
    let file = folder(dir.path(), "journals").join("0.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        text.replacen("\"backoff_steps\":1", "\"backoff_steps\":1,\"colour\":\"red\"", 1),
    )
    .unwrap();
    let error = replay::replay(
        &ENGINE,
        &VERSION_1,
        Segment::read(&file).unwrap(),
        replay::Options::default(),
    )
    .await
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "entry 1: arguments of `reconciliation.reconcile`: unknown key `desired.colour`"
    );
}

/// A configuration with one service and the guest `misbehaving`, which sleeps for an hour.
fn sleeping(dir: &Path) -> Config {
    std::fs::create_dir(dir.join("manifests")).unwrap();
    std::fs::write(dir.join("misbehaving.wasm"), &*COMPONENT).unwrap();
    std::fs::write(
        dir.join("manifests/all.yaml"),
        "apiVersion: v1\nkind: Node\nmetadata: { name: node-1 }\n\
         status: { conditions: [{ type: Ready, status: \"True\" }], addresses: [{ type: InternalIP, address: 10.0.0.1 }] }\n\
         ---\napiVersion: v1\nkind: Service\nmetadata: { name: web, namespace: default, uid: uid-web }\n\
         spec: { type: LoadBalancer, ports: [{ name: http, port: 80, nodePort: 30080 }] }\n",
    )
    .unwrap();
    let file = dir.join("trueup.toml");
    std::fs::write(
        &file,
        "[source]\nmanifests = \"manifests\"\n[guests.lbaas]\nuse = \"file:misbehaving.wasm\"\n\
         settings = { does = \"sleep\", amount = 3600000 }\n\
         [adapter.lbaas]\ncluster = \"test\"\nload_balancers = [\"lb-1\"]\naddresses = [\"203.0.113.10\"]\n\
         [backend.lbaas]\nkind = \"simulated\"\n",
    )
    .unwrap();
    Config::load_with(&file, &BTreeMap::new(), &sections()).unwrap()
}

/// Waits for a condition. Fails the test if that takes too long.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "waited a minute until {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the last of `segments` segments contains the begin of its call. A question is written together with its
/// answer.
async fn call_has_begun(state_dir: &Path, segments: usize) {
    let journal = folder(state_dir, "journals");
    let lines = |file: &Path| std::fs::read_to_string(file).map_or(0, |text| text.lines().count());
    until("the call has begun", || {
        let files = segment_files(&journal).unwrap_or_default();
        files.len() >= segments && files.last().is_some_and(|file| lines(&file.path) >= 2)
    })
    .await;
    // The guest begins its sleep within microseconds of the call. An interruption before that takes effect at the
    // sleep.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn a_stop_cuts_a_sleep_and_the_recording_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = sleeping(dir.path());
    let begun = Instant::now();
    run::watch(
        config.clone(),
        &Registry::default(),
        None,
        call_has_begun(&config.state_dir, 1),
        |_| (),
    )
    .await
    .unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "the test did not wait for the hour to pass"
    );

    let [segment] = <[Segment; 1]>::try_from(segments(&config.state_dir, "journals")).unwrap();
    let [call, ask, ending] = segment.entries.as_slice() else {
        panic!("{:?}", segment.entries)
    };
    assert!(matches!(&call.event, Event::Call(call) if call.name == "reconciliation.reconcile"));
    assert!(matches!(&ask.event, Event::Ask(ask) if ask.name == "clock.sleep-ms" && ask.answer.is_none()));
    assert!(
        matches!(&ending.event, Event::Ending(Ending::Cancelled(text)) if text.starts_with("ended while it slept"))
    );
    let outcome = outcome(segment).await;
    assert!(
        matches!(
            outcome,
            Outcome::IdenticalAsFarAsRecorded {
                tally: Tally { calls: 1, .. },
                ..
            }
        ),
        "{outcome}"
    );
}

#[tokio::test]
async fn a_newer_input_cuts_a_sleep_and_is_worked_on() {
    let dir = tempfile::tempdir().unwrap();
    let config = sleeping(dir.path());
    let manifest = dir.path().join("manifests/all.yaml");
    let changed = async {
        call_has_begun(&config.state_dir, 1).await;
        let text = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(&manifest, text.replace("port: 80,", "port: 81,")).unwrap();
        // The second segment starts with the call for the newer input.
        call_has_begun(&config.state_dir, 2).await;
    };
    run::watch(config.clone(), &Registry::default(), None, changed, |_| ())
        .await
        .unwrap();
    let ports: Vec<_> = segments(&config.state_dir, "journals")
        .iter()
        .flat_map(|segment| &segment.entries)
        .filter_map(|entry| match &entry.event {
            Event::Call(call) => {
                let args: serde_json::Value = serde_json::from_str(call.args.get()).unwrap();
                args["desired"]["ports"][0]["external"].as_u64()
            }
            _ => None,
        })
        .collect();
    assert_eq!(ports, [80, 81]);
}
