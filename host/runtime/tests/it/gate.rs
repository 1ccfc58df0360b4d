//! The swap gate: what a candidate must prove before it decides anything, with real guests and their recordings.
use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use trueup_instance::Program;
use trueup_journal::{Accepted, instance_dir, segment_files, segment_path};
use trueup_work::gate::{self, Gate, Mode, Verdict};

use crate::versions;

use versions::{
    Active, COUNTING, COUNTING_2, ENGINE, FORGETFUL, GUARD, LBAAS_1, LBAAS_2, NAME, RECONCILE, STATUS,
    counting_in_a_pool_of, make, service,
};

async fn prove(active: &Active, candidate: &Arc<Program>, gate: &Gate) -> Verdict {
    let digest = active.digest();
    let proving = gate::prove(&ENGINE, candidate, active.dir.path(), NAME, &digest, gate);
    tokio::time::timeout(GUARD, proving).await.unwrap()
}

fn mode(mode: Mode) -> Gate {
    Gate {
        mode,
        ..Gate::default()
    }
}

/// Two services, each with a reconcile and a read.
async fn two_services() -> Active {
    let active = Active::lbaas();
    for key in ["default/a", "default/b"] {
        let mut instance = active.open(key).await;
        for call in [RECONCILE, STATUS, RECONCILE] {
            make(&mut instance, call, &service(key, &[80, 443]))
                .await
                .answer
                .unwrap();
        }
    }
    active
}

/// One counting guest with this many calls for each of these keys.
async fn counted(settings: serde_json::Value, keys: &[&str], calls: usize) -> Active {
    let active = Active::new(&COUNTING, settings, "0");
    for key in keys {
        let mut instance = active.open(key).await;
        for _ in 0..calls {
            make(&mut instance, RECONCILE, &service("u", &[80])).await;
        }
    }
    active
}

#[tokio::test]
async fn a_version_is_identical_to_itself() {
    let active = two_services().await;
    let verdict = prove(&active, &LBAAS_1, &Gate::default()).await;
    assert_eq!(verdict.to_string(), "identical: 6 calls in 2 recordings");
    assert!(verdict.passed && verdict.identical == 6);
    let told: Verdict = serde_json::from_str(&serde_json::to_string(&verdict).unwrap()).unwrap();
    assert_eq!(told, verdict);
}

#[tokio::test]
async fn a_candidate_that_refuses_the_recorded_settings_replays_with_its_own() {
    let active = two_services().await;
    for key in ["default/a", "default/b"] {
        let files = segment_files(&instance_dir(&active.dir.path().join("journals"), NAME, key)).unwrap();
        for file in files.into_iter().map(|file| file.path) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.contains(r#""settings":{}"#), "{text}");
            fs::write(
                &file,
                text.replacen(r#""settings":{}"#, r#""settings":{"of_another":1}"#, 1),
            )
            .unwrap();
        }
    }
    let verdict = prove(&active, &LBAAS_1, &Gate::default()).await;
    assert!(!verdict.passed, "{verdict}");
    let gate = Gate {
        settings: Some(json!({})),
        ..Gate::default()
    };
    let verdict = prove(&active, &LBAAS_1, &gate).await;
    assert_eq!(
        verdict.to_string(),
        "identical: 6 calls in 2 recordings; decided with its own settings, since it refuses the recorded ones"
    );
    let verdict = prove(&active, &FORGETFUL, &gate).await;
    let shown = verdict.shown_by("file:forgetful.wasm", false, "a/trueup.toml");
    assert!(
        shown.starts_with("; see `TRUEUP_CONFIG=a/trueup.toml trueup replay --guest forgetful.wasm "),
        "{shown}"
    );
}

#[tokio::test]
async fn without_a_replay_the_newest_recording_of_each_key_counts() {
    let mut active = two_services().await;
    active.instances.settings = json!({"backoff_initial_ms": 100});
    // Other settings begin another recording.
    drop(active.open("default/a").await);
    let folder = instance_dir(&active.dir.path().join("journals"), NAME, "default/a");
    assert_eq!(segment_files(&folder).unwrap().len(), 2);
    let off = prove(&active, &FORGETFUL, &mode(Mode::Off)).await;
    assert_eq!(off.recordings, 2, "{off}");
}

#[tokio::test]
async fn what_was_never_recorded_is_no_reason_to_refuse() {
    let active = Active::lbaas();
    let verdict = prove(&active, &LBAAS_2, &Gate::default()).await;
    assert!(verdict.passed);
    assert_eq!(
        verdict.to_string(),
        "nothing replayed: the active version recorded no calls"
    );
    // Recordings of another version do not count as the active one's. The active version has decided nothing that a
    // candidate could be tested with.
    let active = two_services().await;
    let gate = Gate::default();
    let proving = gate::prove(&ENGINE, &FORGETFUL, active.dir.path(), NAME, "sha256:other", &gate);
    let verdict = proving.await;
    assert!(verdict.recordings == 0 && !verdict.passed);
    assert_eq!(
        verdict.to_string(),
        "nothing replayed: the active version recorded no calls"
    );
}

#[tokio::test]
async fn clock_and_chance_are_no_difference_unless_everything_is_compared() {
    let active = counted(json!({}), &["default/web"], 2).await;
    let verdict = prove(&active, &COUNTING_2, &Gate::default()).await;
    assert!(verdict.passed && verdict.identical == 2, "{verdict}");
    let verdict = prove(&active, &COUNTING_2, &mode(Mode::Strict)).await;
    assert!(!verdict.passed && verdict.differ == 1, "{verdict}");
    let shown = verdict.shown_by("builtin:misbehaving@2", false, "trueup.toml");
    assert!(
        shown.starts_with("; see `trueup replay --guest misbehaving@2 --strict "),
        "{shown}"
    );
}

#[tokio::test]
async fn one_that_begins_afresh_is_compared_without_the_recorded_states() {
    let active = two_services().await;
    for afresh in [false, true] {
        let gate = Gate {
            afresh,
            ..Gate::default()
        };
        let verdict = prove(&active, &LBAAS_2, &gate).await;
        assert!(verdict.passed, "{verdict}");
    }
    // A candidate that cannot read the state is not rejected for that.
    let active = counted(json!({}), &["default/web"], 1).await;
    let gate = Gate {
        afresh: true,
        ..mode(Mode::Report)
    };
    let verdict = prove(&active, &LBAAS_1, &gate).await;
    assert!(verdict.passed && verdict.refused.is_none(), "{verdict}");
}

#[tokio::test]
async fn one_that_forgets_a_port_is_refused_with_the_first_differing_field() {
    let active = two_services().await;
    let verdict = prove(&active, &FORGETFUL, &Gate::default()).await;
    assert!(!verdict.passed && verdict.differ == 2 && verdict.not_compared == 4 && verdict.identical == 0);
    let first = verdict.first.as_ref().unwrap();
    assert!(first.key.starts_with("default/") && first.file.exists());
    assert!(
        first.what.contains(": a write that was not recorded: api.destroy "),
        "{}",
        first.what
    );
    let line = verdict.to_string();
    assert!(
        line.starts_with("2 of 2 calls in 2 recordings differ; the first in `default/")
            && line.contains(&format!(" diverged at entry {}: ", first.n))
            && !line.contains('\n'),
        "{line}"
    );
    // The same candidate in report mode.
    let reported = prove(&active, &FORGETFUL, &mode(Mode::Report)).await;
    assert!(reported.passed && reported.first == verdict.first);
    let off = prove(&active, &FORGETFUL, &mode(Mode::Off)).await;
    assert!(off.passed && off.differ == 0);
    assert_eq!(
        off.to_string(),
        "nothing replayed: the gate is off; started from 2 snapshots"
    );
}

#[tokio::test]
async fn versions_differ_only_where_objects_failed_and_that_can_be_accepted() {
    let active = two_services().await;
    let verdict = prove(&active, &LBAAS_2, &Gate::default()).await;
    assert!(verdict.passed, "{verdict}");
    active.fail_a_backend();
    let mut instance = active.open("default/a").await;
    make(&mut instance, RECONCILE, &service("default/a", &[80, 443])).await;
    drop(instance);
    let verdict = prove(&active, &LBAAS_2, &Gate::default()).await;
    assert!(!verdict.passed && verdict.differ == 1, "{verdict}");
    let first = verdict.first.as_ref().unwrap();
    assert!(
        first.what.contains("recorded: api.destroy ") && first.what.contains("asked: api.reset "),
        "{}",
        first.what
    );
}

#[tokio::test]
async fn accepted_differences_count_as_recorded_and_are_counted() {
    let active = counted(json!({}), &["default/web"], 3).await;
    // The candidate has another guest's state and reports one more call.
    let file = active.dir.path().join("accepted.toml");
    let folder = instance_dir(&active.dir.path().join("journals"), NAME, "default/web");
    let [segment] = <[_; 1]>::try_from(segment_files(&folder).unwrap()).unwrap();
    let text = fs::read_to_string(&segment.path).unwrap();
    assert!(text.contains(r#""rounds":2"#));
    fs::write(&segment.path, text.replace(r#""rounds":2"#, r#""rounds":9"#)).unwrap();
    let refused = prove(&active, &COUNTING, &Gate::default()).await;
    assert!(
        refused
            .to_string()
            .contains("`reconciliation.reconcile`: result.Ok.rounds: recorded 9, replayed 2 "),
        "{refused}"
    );
    let rule = "[[accept]]\nentry = \"result of reconciliation.reconcile\"\nfield = \"result.Ok.rounds\"\nfrom = 9\n\
                why = \"the test edits it\"\n";
    let gate = |rule: &str| {
        fs::write(&file, rule).unwrap();
        Gate {
            accepted: Arc::new(gate::read_accepted(&file).unwrap()),
            ..Gate::default()
        }
    };
    let passed = prove(&active, &COUNTING, &gate(rule)).await;
    assert!(passed.passed);
    assert_eq!(
        passed.to_string(),
        "identical: 3 calls in 1 recording; 1 accepted difference"
    );
    let other = prove(&active, &COUNTING, &gate(&rule.replace("from = 9", "from = 8"))).await;
    assert!(!other.passed);
    assert_ne!(*gate(rule).accepted, Accepted::default());
}

#[tokio::test]
async fn refusing_settings_or_state_never_passes_and_other_questions_differ() {
    // Without settings, a candidate can only refuse the state.
    let peaceful = counted(json!({}), &["default/web"], 2).await;
    let refused = |verdict: Verdict, says: &str| {
        assert!(!verdict.passed);
        let line = verdict.to_string();
        assert!(line.contains(says) && !line.contains('\n'), "{line}");
    };
    // A state that it cannot read, and settings that it does not know, in every mode.
    for mode in [Mode::Identical, Mode::Report, Mode::Off].map(mode) {
        refused(
            prove(&peaceful, &LBAAS_1, &mode).await,
            "refused: guest `lbaas@1` refuses the snapshot: snapshot: was ",
        );
        refused(
            prove(&peaceful, &LBAAS_1, &mode).await,
            "; `--afresh` starts it without that state",
        );
        let troubled = counted(json!({"does": "sleep"}), &["default/web"], 1).await;
        refused(
            prove(&troubled, &LBAAS_1, &mode).await,
            "refused: guest `lbaas@1` refuses its settings: ",
        );
    }
    refused(
        prove(&peaceful, &COUNTING_2, &mode(Mode::Strict)).await,
        "1 of 1 call in 1 recording differs; the first in `default/web` diverged at entry 2: recorded: clock.now-ms {}; asked: random.next-u64 {} (`",
    );
}

/// Rewrites the recordings as if they had these settings.
fn as_if_with(active: &Active, settings: &serde_json::Value) {
    let folder = active.dir.path().join("journals").join(NAME);
    for key in fs::read_dir(folder).unwrap() {
        for file in segment_files(&key.unwrap().path()).unwrap() {
            let text = fs::read_to_string(&file.path).unwrap();
            let changed = text.replacen(r#""settings":{}"#, &format!(r#""settings":{settings}"#), 1);
            assert_ne!(text, changed);
            // The gate waits for a hanging candidate no longer than the recorded guest's limit.
            fs::write(&file.path, changed.replacen(r#""cpu_ms":10000"#, r#""cpu_ms":1000"#, 1)).unwrap();
        }
    }
}

#[tokio::test]
async fn one_that_traps_or_never_answers_differs_and_the_gate_ends() {
    let active = counted(json!({}), &["default/a", "default/b"], 2).await;
    as_if_with(&active, &json!({"does": "panic"}));
    let verdict = prove(&active, &COUNTING, &Gate::default()).await;
    assert!(!verdict.passed && verdict.differ == 2);
    assert!(
        verdict
            .to_string()
            .contains(r#"replayed: trap "guest `misbehaving@1` in `reconciliation.reconcile`: trapped: "#),
        "{verdict}"
    );

    let active = counted(json!({}), &["default/a", "default/b"], 2).await;
    as_if_with(&active, &json!({"does": "loop"}));
    let verdict = prove(&active, &COUNTING, &Gate::default()).await;
    assert!(
        !verdict.passed && verdict.differ == 1 && verdict.recordings == 1,
        "{verdict}"
    );
    let line = verdict.to_string();
    assert!(
        line.contains("replayed: deadline ") && line.contains("; given up: a call gave no answer in its time"),
        "{line}"
    );

    // The whole gate has its own time limit.
    let active = counted(json!({}), &["default/a"], 1).await;
    let folder = instance_dir(&active.dir.path().join("journals"), NAME, "default/a");
    let [file] = <[_; 1]>::try_from(segment_files(&folder).unwrap()).unwrap();
    let text = fs::read_to_string(&file.path).unwrap();
    fs::write(
        &file.path,
        text.replacen(r#""settings":{}"#, r#""settings":{"does":"loop"}"#, 1),
    )
    .unwrap();
    let gate = Gate {
        wall_max: Duration::from_millis(200),
        ..Gate::default()
    };
    let verdict = prove(&active, &COUNTING, &gate).await;
    assert!(!verdict.passed);
    assert!(
        verdict
            .to_string()
            .ends_with("; given up: the gate took more than 200 ms"),
        "{verdict}"
    );
}

#[tokio::test]
async fn only_as_many_recordings_are_read_as_hold_the_calls_newest_first() {
    let keys: Vec<String> = (0..20).map(|at| format!("default/{at}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let active = counted(json!({}), &keys, 3).await;
    let file_of = |key: &str| {
        let folder = instance_dir(&active.dir.path().join("journals"), NAME, key);
        segment_files(&folder).unwrap().remove(0).path
    };
    for (at, key) in keys.iter().enumerate() {
        let file = fs::File::options().append(true).open(file_of(key)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at as u64))
            .unwrap();
    }
    let gate = Gate {
        calls: 7,
        ..Gate::default()
    };
    // Damage in an old recording goes unnoticed.
    fs::write(file_of("default/3"), "{}\n").unwrap();
    fs::File::options()
        .append(true)
        .open(file_of("default/3"))
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    let verdict = prove(&active, &COUNTING, &gate).await;
    assert_eq!(verdict.to_string(), "identical: 9 calls in 3 recordings");
}

#[tokio::test]
async fn a_torn_end_is_ignored_and_damage_is_reported_and_skipped() {
    let active = counted(json!({}), &["default/a", "default/b", "default/c"], 2).await;
    let file_of = |key: &str| {
        let folder = instance_dir(&active.dir.path().join("journals"), NAME, key);
        segment_files(&folder).unwrap().remove(0).path
    };
    let torn = fs::read_to_string(file_of("default/a")).unwrap();
    fs::write(file_of("default/a"), &torn[..torn.len() - 9]).unwrap();
    let damaged = fs::read_to_string(file_of("default/b")).unwrap();
    fs::write(file_of("default/b"), damaged.replace(r#"{"n":3"#, r#"{"n":7"#)).unwrap();
    // A header that is still being written.
    fs::write(
        instance_dir(&active.dir.path().join("journals"), NAME, "default/c").join("99.jsonl"),
        "{\"n\":99",
    )
    .unwrap();
    let verdict = prove(&active, &COUNTING, &Gate::default()).await;
    assert!(verdict.passed && verdict.identical == 4 && verdict.passed_over == 1);
    let line = verdict.to_string();
    assert!(
        line.starts_with("identical: 4 calls in 2 recordings; 1 recording can't be read, the first: `")
            && line.contains("line 4 is damaged: entry 7 is where entry 3 belongs"),
        "{line}"
    );
}

#[tokio::test]
async fn an_answer_that_is_none_is_damage_and_refuses_no_candidate() {
    let active = two_services().await;
    let folder = instance_dir(&active.dir.path().join("journals"), NAME, "default/b");
    let file = segment_files(&folder).unwrap().remove(0).path;
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen(r#""answer":{"Ok""#, r#""answer":{"Perhaps""#, 1)).unwrap();
    let verdict = prove(&active, &LBAAS_1, &Gate::default()).await;
    let line = verdict.to_string();
    assert!(
        verdict.passed && line.contains("1 recording can't be read, the first: `"),
        "{line}"
    );
}

#[tokio::test]
async fn that_there_is_no_room_for_the_candidate_is_not_its_fault() {
    let mut active = counted(json!({}), &["default/web"], 2).await;
    let (engine, candidate) = counting_in_a_pool_of(1);
    active.instances.engine = engine.clone();
    active.instances.program = Arc::clone(&candidate);
    let holding = active.open("default/other").await;
    let digest = active.digest();
    let gate = Gate::default();
    let prove = || gate::prove(&engine, &candidate, active.dir.path(), NAME, &digest, &gate);
    let verdict = tokio::time::timeout(GUARD, prove()).await.unwrap();
    assert!(!verdict.passed && verdict.refused.is_none(), "{verdict}");
    let line = verdict.to_string();
    assert!(
        line.starts_with("nothing replayed; given up: there was no room for an instance of it: "),
        "{line}"
    );
    drop(holding);
    let verdict = tokio::time::timeout(GUARD, prove()).await.unwrap();
    assert!(verdict.passed && verdict.identical == 2, "{verdict}");
}

#[tokio::test]
async fn calls_behind_too_many_recordings_of_others_do_not_count_as_none() {
    let active = counted(json!({}), &["default/a"], 1).await;
    let folder = instance_dir(&active.dir.path().join("journals"), NAME, "default/a");
    let [recorded] = <[_; 1]>::try_from(segment_files(&folder).unwrap()).unwrap();
    let header = fs::read_to_string(&recorded.path)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_owned()
        + "\n";
    let of_another = header.replace(&active.digest(), "sha256:another");
    // Files that are written within one tick of the clock have the same time.
    let file = fs::File::options().write(true).open(&recorded.path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    for number in 1..=1_000 {
        fs::write(segment_path(&folder, 1_000 * number), &of_another).unwrap();
    }
    let verdict = prove(&active, &COUNTING, &Gate::default()).await;
    assert!(!verdict.passed, "{verdict}");
    assert_eq!(
        verdict.to_string(),
        "nothing replayed; given up: none of the newest 1000 recordings holds a call of the active version, and older ones were not looked at"
    );
    fs::remove_file(segment_path(&folder, 1_000)).unwrap();
    assert!(prove(&active, &COUNTING, &Gate::default()).await.passed);
}
