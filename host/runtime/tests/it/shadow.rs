//! Shadow tests: a candidate beside an active guest, with real guests that make real calls.
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use trueup_capabilities::metrics::Registry;
use trueup_instance::replay::{self, Compare, Options};
use trueup_instance::{Instance, Instances, Program};
use trueup_journal::{Journal, Outcome, Segment};
use trueup_work::shadow::{
    KEPT_AT_ONCE_MAX, KEPT_PER_SECOND_MAX, KEYS_MAX, QUEUE_CALLS_MAX, Setup, Shadow, Status, Verdict,
};

use crate::versions;

use versions::{
    Active, COUNTING, COUNTING_2, ENGINE, FORGETFUL, GUARD, IPAM, LBAAS_1, LBAAS_2, NAME, RECONCILE, STATUS, make,
    service,
};

/// An active guest with a candidate in shadow.
struct Stage {
    active: Active,
    shadow: Shadow,
    metrics: Arc<Registry>,
}

/// What is compared where the configuration says nothing else.
const COMPARE: Compare = Compare::Decisions;

async fn started(
    active: &Active,
    candidate: &Arc<Program>,
    settings: Value,
    compare: Compare,
) -> Result<(Shadow, Arc<Registry>), String> {
    let metrics = Arc::<Registry>::default();
    let setup = Setup {
        active: active.instances.clone(),
        candidate: Instances {
            program: Arc::clone(candidate),
            settings,
            ..active.instances.clone()
        },
        compare,
        folder: folder(active),
        metrics: Arc::clone(&metrics),
    };
    let shadow = tokio::time::timeout(GUARD, Shadow::start(setup)).await.unwrap()?;
    Ok((shadow, metrics))
}

fn folder(active: &Active) -> PathBuf {
    active.dir.path().join("shadow").join(NAME)
}

/// Stops a candidate, and waits for the end of its thread.
async fn stop(shadow: Shadow) {
    let mut in_a_row = shadow.watch();
    drop(shadow);
    let ending = async { while in_a_row.changed().await.is_ok() {} };
    tokio::time::timeout(GUARD, ending).await.unwrap();
}

impl Stage {
    async fn new(active: Active, candidate: &Arc<Program>, settings: Value) -> Self {
        Self::comparing(COMPARE, active, candidate, settings).await
    }

    async fn comparing(compare: Compare, active: Active, candidate: &Arc<Program>, settings: Value) -> Self {
        let (shadow, metrics) = started(&active, candidate, settings, compare).await.unwrap();
        Self {
            active,
            shadow,
            metrics,
        }
    }

    async fn open(&self, key: &str) -> Instance {
        self.active.open(key).await
    }

    /// One call as the host makes it: the candidate gets it afterwards.
    async fn call(&self, instance: &mut Instance, key: &str, call: &str, args: &RawValue) -> Option<Value> {
        let n = instance.host().tape.journal().map(Journal::next_n);
        let made = make(instance, call, args).await;
        let digest = instance.program.guest.digest;
        self.shadow.observe(key, &digest, n, made.took);
        made.answer
    }

    /// One call for a Service with one port, under the key `k`.
    async fn reconcile(&self, instance: &mut Instance) -> Option<Value> {
        self.call(instance, "k", RECONCILE, &service("u", &[80])).await
    }

    async fn settled(&self) -> Status {
        let settling = async {
            loop {
                let status = self.shadow.status();
                if status.waiting == 0 {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(GUARD, settling).await.unwrap()
    }

    fn counted(&self, verdict: Verdict) -> u64 {
        let series = format!("trueup_shadow_calls_total{{guest=\"{NAME}\",verdict=\"{verdict}\"}}");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it counts calls")]
        let count = self.metrics.number(&series).unwrap_or(0.0) as u64;
        count
    }
}

fn numbers(status: &Status) -> [u64; 5] {
    let Status {
        compared,
        same,
        different,
        unrecorded,
        skipped,
        ..
    } = status;
    [*compared, *same, *different, *unrecorded, *skipped]
}

#[tokio::test]
async fn a_version_beside_itself_is_the_same_in_every_call() {
    let stage = Stage::new(Active::lbaas(), &LBAAS_1, json!({})).await;
    let mut in_a_row = stage.shadow.watch();
    for key in ["default/a", "default/b"] {
        let mut instance = stage.open(key).await;
        for call in [RECONCILE, STATUS, RECONCILE, "reconciliation.reconcile-check"] {
            stage
                .call(&mut instance, key, call, &service(key, &[80, 443]))
                .await
                .unwrap();
        }
    }
    let status = stage.settled().await;
    assert_eq!(numbers(&status), [8, 8, 0, 0, 0]);
    assert_eq!((status.same_in_a_row, status.waiting, &status.first), (8, 0, &None));
    tokio::time::timeout(GUARD, in_a_row.wait_for(|status| status.same_in_a_row >= 8))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stage.counted(Verdict::Same), 8);
    let folder = folder(&stage.active);
    stop(stage.shadow).await;
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "no difference is kept");
    assert!(in_a_row.changed().await.is_err(), "it has ended");
}

#[tokio::test]
async fn exactly_the_differences_of_a_forgotten_port_are_counted_and_kept() {
    let stage = Stage::new(Active::lbaas(), &FORGETFUL, json!({})).await;
    let mut reconciled = 0;
    for key in ["default/a", "default/b", "default/c"] {
        let mut instance = stage.open(key).await;
        // Without a port, there is none to forget.
        for ports in [&[80, 443][..], &[80], &[]] {
            stage
                .call(&mut instance, key, RECONCILE, &service(key, ports))
                .await
                .unwrap();
            stage
                .call(&mut instance, key, STATUS, &service(key, ports))
                .await
                .unwrap();
            reconciled += u64::from(!ports.is_empty());
        }
    }
    // The calls did not wait for the candidate, and it missed none.
    let status = stage.settled().await;
    assert_eq!(numbers(&status), [18, 12, reconciled, 0, 0]);
    assert_eq!(reconciled, 6);
    assert_eq!(
        [Verdict::Same, Verdict::Different].map(|verdict| stage.counted(verdict)),
        [12, 6]
    );
    assert_eq!(status.last.len(), 6);
    let first = status.first.as_ref().unwrap();
    assert_eq!((first.key.as_str(), first.verdict), ("default/a", Verdict::Different));
    assert!(
        first.what.contains(": a write that was not recorded: api.destroy "),
        "{}",
        first.what
    );
    // The stored call shows the same difference again, and is what the active guest did.
    for difference in &status.last {
        let kept = || Segment::read(difference.file.as_ref().unwrap()).unwrap();
        let outcome = |program: &Arc<Program>| {
            let program = Arc::clone(program);
            async move {
                let options = Options {
                    compare: COMPARE,
                    ..Options::default()
                };
                replay::replay(&ENGINE, &program, kept(), options).await.unwrap()
            }
        };
        let replayed = outcome(&FORGETFUL).await;
        assert_eq!(
            (replayed.diverged_at(), replayed.one_line()),
            (difference.n, difference.what.clone())
        );
        assert!(matches!(outcome(&LBAAS_1).await, Outcome::Identical { .. }));
    }
    assert!(first.file.as_ref().unwrap().ends_with("1-default%2Fa.jsonl"));
}

#[tokio::test]
async fn versions_differ_where_objects_failed_and_nowhere_else() {
    let stage = Stage::new(Active::lbaas(), &LBAAS_2, json!({})).await;
    let mut instance = stage.open("default/a").await;
    let desired = service("default/a", &[80]);
    for _ in 0..3 {
        stage
            .call(&mut instance, "default/a", RECONCILE, &desired)
            .await
            .unwrap();
    }
    assert_eq!(numbers(&stage.settled().await), [3, 3, 0, 0, 0]);
    stage.active.fail_a_backend();
    for _ in 0..3 {
        stage
            .call(&mut instance, "default/a", RECONCILE, &desired)
            .await
            .unwrap();
    }
    let status = stage.settled().await;
    assert_eq!(numbers(&status), [6, 5, 1, 0, 0], "the next calls are the same again");
    assert_eq!(status.same_in_a_row, 2);
    assert!(status.first.unwrap().what.contains("asked: api.reset "));
}

#[tokio::test]
async fn reads_that_differ_are_no_difference_where_decisions_are_the_same() {
    for (compare, expected) in [(COMPARE, [3, 3, 0, 0, 0]), (Compare::Everything, [3, 0, 3, 0, 0])] {
        // The candidate reads no load balancers.
        let active = Active::new(&COUNTING, json!({"does": "list"}), "0");
        let stage = Stage::comparing(compare, active, &COUNTING, json!({})).await;
        let mut instance = stage.open("k").await;
        for _ in 0..3 {
            stage.reconcile(&mut instance).await.unwrap();
        }
        assert_eq!(numbers(&stage.settled().await), expected, "{compare:?}");
    }
}

/// An active guest that counts, beside one of the same with these settings.
async fn counting(settings: Value) -> Stage {
    Stage::new(Active::new(&COUNTING, json!({}), "0"), &COUNTING, settings).await
}

#[tokio::test]
async fn a_question_beyond_the_recorded_ones_is_told_apart() {
    // The active guest asks for the time only, but this candidate reads load balancers too.
    let stage = counting(json!({"does": "list"})).await;
    let mut instance = stage.open("k").await;
    for _ in 0..3 {
        stage.reconcile(&mut instance).await.unwrap();
    }
    let status = stage.settled().await;
    assert_eq!(numbers(&status), [3, 0, 0, 3, 0]);
    assert!(
        status
            .first
            .unwrap()
            .what
            .starts_with("asked something never recorded at entry 3: asked: api.list-tagged {")
    );
    assert_eq!(stage.counted(Verdict::Unrecorded), 3);
}

#[tokio::test]
async fn one_that_refuses_its_settings_or_is_of_another_world_does_not_begin() {
    let active = Active::lbaas();
    let refused = |started: Result<(Shadow, Arc<Registry>), String>| started.err().unwrap();
    let settings = refused(started(&active, &LBAAS_1, json!({"no": 1}), COMPARE).await);
    assert!(
        settings.starts_with("guest `lbaas@1` refuses its settings: "),
        "{settings}"
    );
    let world = refused(started(&active, &IPAM, json!({}), COMPARE).await);
    assert_eq!(
        world,
        "guest `ipam@1` is of the world trueup:ipam/ipam-datastore@0.1.0, must be of \
         trueup:lbaas/lbaas-reconciler@0.1.0, as the active `lbaas@1` is"
    );
}

#[tokio::test]
async fn a_trapping_candidate_differs_in_every_call_and_the_active_one_is_fine() {
    let stage = counting(json!({"does": "panic"})).await;
    let mut instance = stage.open("k").await;
    for count in 1..=5 {
        let answer = stage.reconcile(&mut instance).await.unwrap();
        assert_eq!(answer["Ok"]["rounds"], json!(count));
    }
    let status = stage.settled().await;
    assert_eq!(numbers(&status), [5, 0, 5, 0, 0]);
    let what = &status.first.as_ref().unwrap().what;
    assert!(
        what.contains("recorded: result ") && what.contains("replayed: trap "),
        "{what}"
    );
}

#[tokio::test]
async fn one_that_never_answers_is_not_waited_for_by_anyone() {
    let stage = counting(json!({"does": "loop"})).await;
    let mut instance = stage.open("k").await;
    stage.reconcile(&mut instance).await.unwrap();
    let status = stage.settled().await;
    let what = &status.first.as_ref().unwrap().what;
    assert!(
        what.contains("`reconciliation.reconcile`") && what.contains(", replayed no answer within "),
        "{what}"
    );
    // The candidate is computing, so calls queue up. Those that do not fit in the queue are not compared.
    let calls = QUEUE_CALLS_MAX as u64 + 50;
    for _ in 0..calls {
        stage.reconcile(&mut instance).await.unwrap();
    }
    let status = stage.shadow.status();
    assert!(status.waiting <= QUEUE_CALLS_MAX as u64 + 1, "{status:?}");
    assert!(status.skipped > 0, "{status:?}");
    // It stops in the middle of a call.
    stop(stage.shadow).await;
}

#[tokio::test]
async fn a_call_the_active_guest_did_not_end_is_compared_as_far_as_recorded() {
    let active = Active::new(&COUNTING, json!({"does": "panic"}), "0");
    let stage = Stage::new(active, &COUNTING, json!({"does": "panic"})).await;
    for _ in 0..2 {
        let mut instance = stage.open("k").await;
        assert_eq!(stage.reconcile(&mut instance).await, None);
    }
    assert_eq!(numbers(&stage.settled().await), [2, 2, 0, 0, 0]);

    let mut active = Active::new(&COUNTING, json!({"does": "loop"}), "0");
    active.instances.limits.cpu_ms = 1_000;
    let stage = Stage::new(active, &COUNTING, json!({"does": "loop"})).await;
    let mut instance = stage.open("k").await;
    assert_eq!(stage.reconcile(&mut instance).await, None);
    assert_eq!(numbers(&stage.settled().await), [1, 1, 0, 0, 0]);
}

#[tokio::test]
async fn more_keys_than_instances_take_turns_and_are_all_compared() {
    let stage = counting(json!({})).await;
    let keys: Vec<String> = (0..KEYS_MAX + 10).map(|at| format!("default/{at}")).collect();
    let mut instances = Vec::new();
    for key in &keys {
        instances.push(stage.open(key).await);
    }
    for round in 1..=3 {
        for (key, instance) in keys.iter().zip(&mut instances) {
            let answer = stage
                .call(instance, key, RECONCILE, &service("u", &[80]))
                .await
                .unwrap();
            assert_eq!(answer["Ok"]["rounds"], json!(round));
        }
        stage.settled().await;
    }
    let calls = 3 * keys.len() as u64;
    assert_eq!(numbers(&stage.settled().await), [calls, calls, 0, 0, 0]);
}

#[tokio::test]
async fn calls_of_another_version_than_the_active_one_are_not_compared() {
    let stage = counting(json!({})).await;
    let mut instance = stage.open("k").await;
    stage.reconcile(&mut instance).await.unwrap();
    // A comparison of it would count: the recording has such a call.
    stage
        .shadow
        .observe("k", &COUNTING_2.guest.digest, Some(1), Duration::ZERO);
    stage.reconcile(&mut instance).await.unwrap();
    assert_eq!(numbers(&stage.settled().await), [2, 2, 0, 0, 1]);
}

#[tokio::test]
async fn all_differences_are_counted_and_a_few_a_second_are_kept() {
    // The candidate answers with an error.
    let says = json!({"does": "say", "amount": 1});
    let stage = counting(says).await;
    let mut instance = stage.open("k").await;
    let (begun, calls) = (Instant::now(), 300);
    for _ in 0..calls {
        stage.reconcile(&mut instance).await.unwrap();
    }
    let status = stage.settled().await;
    let allowed = u64::from(KEPT_AT_ONCE_MAX) + u64::from(KEPT_PER_SECOND_MAX) * (1 + begun.elapsed().as_secs());
    assert_eq!(numbers(&status), [calls, 0, calls, 0, 0]);
    assert!(status.first.unwrap().file.is_some());
    let folder = folder(&stage.active);
    stop(stage.shadow).await;
    let kept = fs::read_dir(&folder).unwrap().count() as u64;
    assert!(
        (u64::from(KEPT_AT_ONCE_MAX)..=allowed).contains(&kept),
        "{kept} files, {allowed} are allowed"
    );
}

#[tokio::test]
async fn where_the_active_guest_begins_a_segment_so_does_the_candidate() {
    for compare in [COMPARE, Compare::Everything] {
        let mut active = Active::new(&COUNTING, json!({"does": "ask-at-start"}), "0");
        active.instances.journal.segment_entries = 9;
        let stage = Stage::comparing(compare, active, &COUNTING, json!({"does": "ask-at-start"})).await;
        let mut instance = stage.open("k").await;
        let mut calls = 0;
        for _ in 0..20 {
            stage.reconcile(&mut instance).await.unwrap();
            instance = stage.active.instances.rotate_if_long(instance).await.unwrap();
            calls += 1;
        }
        let status = stage.settled().await;
        assert_eq!(numbers(&status), [calls, calls, 0, 0, 0], "{status:?}");
    }
}

#[tokio::test]
async fn a_clock_read_at_the_start_is_unrecorded_only_in_a_strict_comparison() {
    for (compare, expected) in [(COMPARE, [3, 3, 0, 0, 0]), (Compare::Everything, [3, 0, 0, 3, 0])] {
        let active = Active::new(&COUNTING, json!({}), "0");
        let stage = Stage::comparing(compare, active, &COUNTING, json!({"does": "ask-at-start"})).await;
        let mut instance = stage.open("k").await;
        for _ in 0..3 {
            stage.reconcile(&mut instance).await.unwrap();
        }
        assert_eq!(numbers(&stage.settled().await), expected, "{compare:?}");
    }
}

#[tokio::test]
async fn a_guest_with_a_state_keeps_its_own_over_hundreds_of_calls() {
    let initial = r#"{"version":"trueup-ipam/1","enis":[],"resting":[],"held":[],"store":{"in_step":false,"entries":0,"blocked":null}}"#;
    let settings = json!({ "cooling_period_ms": 0, "min_eni_lifetime_ms": 0 });
    let mut active = Active::new(&IPAM, settings.clone(), initial);
    active.instances.journal.segment_entries = 150;
    let stage = Stage::new(active, &IPAM, settings).await;
    let mut instance = stage.open("pods").await;
    let raw = |value: Value| to_raw_value(&value).unwrap();
    let eni = json!({"eni_id": "eni-1", "device_number": 0, "is_primary": false, "is_trunk": false});
    let mut calls = vec![("datastore.add-eni", raw(eni))];
    for at in 1..=20 {
        let address = json!({"eni_id": "eni-1", "ipv4": format!("10.0.0.{at}")});
        calls.push(("datastore.add-ipv4-address-to-store", raw(address)));
    }
    for at in 0..180 {
        calls.push(match at % 3 {
            0 => ("datastore.assign-pod-ipv4-address", raw(sandbox(at % 15))),
            1 => ("datastore.allocated-ips", raw(json!({}))),
            _ => ("datastore.find-address-for-sandbox", raw(sandbox(at % 15))),
        });
    }
    for (call, args) in &calls {
        stage.call(&mut instance, "pods", call, args).await.unwrap();
        instance = stage.active.instances.rotate_if_long(instance).await.unwrap();
    }
    let status = stage.settled().await;
    let calls = calls.len() as u64;
    assert!(calls > 200);
    assert_eq!(numbers(&status), [calls, calls, 0, 0, 0], "{status:?}");
}

fn sandbox(at: u32) -> Value {
    json!({"key": {"network_name": "net", "container_id": format!("c-{at}"), "if_name": "eth0"}})
}

#[tokio::test]
async fn what_no_recording_shows_is_skipped_and_what_is_left_out_counts() {
    let stage = counting(json!({})).await;
    let mut instance = stage.open("k").await;
    stage.reconcile(&mut instance).await.unwrap();
    let digest = instance.program.guest.digest;
    // A call that is not recorded, one that has no recording yet, and one of a key without any.
    for (key, n) in [("k", None), ("k", Some(1_000)), ("other", Some(1))] {
        stage.shadow.observe(key, &digest, n, Duration::ZERO);
    }
    // A call that the candidate does not make: the next one begins in the state after it.
    make(&mut instance, RECONCILE, &service("u", &[80])).await;
    stage.reconcile(&mut instance).await.unwrap();
    stage.reconcile(&mut instance).await.unwrap();
    assert_eq!(numbers(&stage.settled().await), [3, 3, 0, 0, 3]);
    assert_eq!(stage.counted(Verdict::Skipped), 3);
}

#[tokio::test]
async fn a_candidate_gets_the_settings_that_the_active_instance_was_begun_with() {
    // The settings have changed since the instance started. They decide about a read of the clock, which only a strict
    // comparison sees.
    let active = Active::new(&COUNTING, json!({}), "0");
    let stage = Stage::comparing(Compare::Everything, active, &COUNTING, json!({})).await;
    let mut begun_before = Active::new(&COUNTING, json!({"does": "ask-at-start"}), "0");
    begun_before.instances.journal.segment_entries = 9;
    // In the folder of the other.
    begun_before.instances.state_dir = stage.active.instances.state_dir.clone();
    let mut instance = begun_before.open("k").await;
    for _ in 0..20 {
        stage.reconcile(&mut instance).await.unwrap();
        instance = begun_before.instances.rotate_if_long(instance).await.unwrap();
    }
    assert_eq!(numbers(&stage.settled().await), [20, 20, 0, 0, 0]);
}
