//! Guests that break the rules: the host stops each with a clear line, records and replays it, while another guest
//! works on. In process here; with the real program in `limits/program.rs`.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::guests::misbehaving;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use trueup_base::clock::VirtualClock;
use trueup_capabilities::faults::Faults;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::lbaas::simulated::{Resource, Simulated};
use trueup_capabilities::lbaas::{Backend, Mode, Spec, State};
use trueup_capabilities::log::{KeptLog, NoLog};
use trueup_capabilities::meter::Limits;
use trueup_capabilities::{Backends, Host, Identity};
use trueup_instance::{Instance, Instances, Program, Start, replay};
use trueup_journal::{Ending, Event, Files, Options, Outcome, Segment, Tally, Tape, instance_dir, segment_files};

use crate::programs::{ENGINE, built_in, program};

mod program;

static COMPONENT: LazyLock<Vec<u8>> = LazyLock::new(|| misbehaving::built("1", misbehaving::guests::build));
static MISBEHAVING: LazyLock<Arc<Program>> = LazyLock::new(|| program(&COMPONENT));
static LBAAS: LazyLock<Arc<Program>> = LazyLock::new(|| built_in("lbaas"));

/// The limit of a call's time. Short, so that the tests are fast; long enough for an honest guest on a busy machine,
/// which may stall in its call.
const LIMIT_MS: u64 = 1500;

/// Instances of the guest `misbehaving` that cause this trouble, with their journals in `state_dir`.
fn instances(state_dir: &Path, does: &str, amount: u64, limits: Limits) -> Instances {
    Instances {
        name: "misbehaving",
        engine: ENGINE.clone(),
        program: Arc::clone(&MISBEHAVING),
        recorded: Arc::new(|_| None),
        afresh: false,
        settings: json!({ "does": does, "amount": amount }),
        grants: Grants::everything(),
        limits,
        initial: "0".to_owned(),
        state_dir: state_dir.to_owned(),
        record: true,
        journal: Options::default(),
        files: Files::default(),
    }
}

/// An Engine with one load balancer, and many resources with the tag `many`.
fn simulated() -> Backends {
    let engine = Simulated::new(Arc::new(VirtualClock::new(0)), Arc::new(Faults::default()), 0);
    engine.put_load_balancer("lb-1".to_owned(), State::Ok);
    for number in 0..100 {
        let spec = Spec::Backend(Backend {
            name: format!("backend {number}"),
            load_balancer: "lb-1".to_owned(),
            mode: Mode::Tcp,
            health_check: String::new(),
        });
        engine.put(Resource {
            identifier: format!("b-{number}"),
            state: State::Ok,
            tags: ["many".to_owned()].into(),
            spec,
        });
    }
    Backends {
        clock: Arc::new(VirtualClock::new(0)),
        log: Arc::new(NoLog),
        lbaas: Some(Arc::new(engine)),
        ..Backends::default()
    }
}

/// A wish for one port on one server, of the service with this name.
fn wish(service: &str, uid: &str) -> Box<RawValue> {
    to_raw_value(&json!({ "desired": {
        "load_balancers": ["lb-1"],
        "name_suffix": format!("{service}.default.test"),
        "service_uid": uid,
        "external_addresses": ["203.0.113.10"],
        "ports": [{ "name": "http", "external": 80, "internal": 30080 }],
        "servers": [{ "name": "node-1", "address": "10.0.0.1" }],
        "backoff_steps": 3,
    } }))
    .unwrap()
}

async fn reconcile(instance: &mut Instance, args: &RawValue) -> Result<serde_json::Value, String> {
    let answer = instance.call("reconciliation.reconcile", args).await;
    answer
        .map(|answer| serde_json::from_str(answer.get()).unwrap())
        .map_err(|error| error.to_string())
}

/// Lets lbaas reconcile one service against its own Engine.
async fn another_guest() -> serde_json::Value {
    let host = Host::new(
        Identity::default(),
        Tape::memory(),
        Grants::everything(),
        simulated(),
        Limits::default(),
    );
    let start = Start {
        settings: &json!({}),
        snapshot: None,
        cpu_max: Duration::from_secs(60),
    };
    let mut instance = Instance::start(&ENGINE, &LBAAS, host, start)
        .await
        .map_err(|(_, error)| error)
        .unwrap();
    reconcile(&mut instance, &wish("good", "uid-good")).await.unwrap()
}

fn segments(state_dir: &Path, guest: &str, key: &str) -> Vec<Segment> {
    let files = segment_files(&instance_dir(&state_dir.join("journals"), guest, key)).unwrap();
    files.iter().map(|file| Segment::read(&file.path).unwrap()).collect()
}

struct Trouble {
    does: &'static str,
    limits: Limits,
    /// The kind of ending in the journal.
    ends_by: &'static str,
    /// What the text must contain, besides the guest and the export.
    says: &'static [&'static str],
    /// Whether the recording replays to its end.
    replays_to_the_end: bool,
}

impl Trouble {
    /// A trap within the usual limits.
    fn trap(does: &'static str, says: &'static [&'static str]) -> Self {
        Self {
            does,
            limits: Limits::default(),
            ends_by: "trap",
            says,
            replays_to_the_end: true,
        }
    }
}

fn kind(ending: &Ending) -> (&'static str, &str) {
    match ending {
        Ending::Result(value) => ("result", value.get()),
        Ending::Trap(text) => ("trap", text),
        Ending::Deadline(text) => ("deadline", text),
        Ending::Memory(text) => ("memory", text),
        Ending::Cancelled(text) => ("cancelled", text),
    }
}

/// Checks that the host stops and records the trouble, another guest works on meanwhile, and the next instance has the
/// earlier state.
async fn check(trouble: Trouble) {
    let Trouble {
        does,
        limits,
        ends_by,
        says,
        replays_to_the_end,
    } = trouble;
    let dir = tempfile::tempdir().unwrap();
    let instances = instances(dir.path(), does, 0, limits);
    let (calm, wild) = (wish("calm", "uid"), wish("wild", "many"));
    let mut instance = instances.open("default/bad", simulated()).await.unwrap();
    assert_eq!(
        reconcile(&mut instance, &calm).await.unwrap()["Ok"]["rounds"],
        1,
        "{does}"
    );

    // Compile it first: that would block the thread that both share.
    LazyLock::force(&LBAAS);
    let bad = async { (reconcile(&mut instance, &wild).await, Instant::now()) };
    let good = async { (another_guest().await, Instant::now()) };
    let ((stopped, stopped_at), (good, good_at)) = tokio::join!(bad, good);
    assert_eq!(good["Ok"]["created"], 4, "{does}: one of each kind");
    assert!(
        does != "loop" || good_at < stopped_at,
        "the other guest waited for the end of the loop"
    );

    let text = stopped.unwrap_err();
    assert!(
        text.starts_with("guest `misbehaving@1` in `reconciliation.reconcile`: "),
        "{does}: {text}"
    );
    assert!(
        says.iter().all(|part| text.contains(part)) && !text.contains('\n'),
        "{does}: {text}"
    );
    assert!(!instance.is_usable(), "{does}: the instance is gone");
    drop(instance);

    let mut next = instances.open("default/bad", simulated()).await.unwrap();
    assert_eq!(
        reconcile(&mut next, &calm).await.unwrap()["Ok"]["rounds"],
        2,
        "{does}: the state from before the trouble"
    );
    drop(next);
    let [recorded, after] = <[Segment; 2]>::try_from(segments(dir.path(), "misbehaving", "default/bad")).unwrap();
    let Some(Event::Ending(ending)) = recorded.entries.last().map(|entry| &entry.event) else {
        panic!("{does}: the recording has no ending")
    };
    assert_eq!(kind(ending), (ends_by, text.as_str()), "{does}");

    let begun = Instant::now();
    for _ in 0..2 {
        let outcome = replay::replay(&ENGINE, &MISBEHAVING, recorded.clone(), replay::Options::default())
            .await
            .unwrap();
        match outcome {
            Outcome::Identical(Tally { calls: 2, .. }) if replays_to_the_end => {}
            Outcome::IdenticalAsFarAsRecorded {
                tally: Tally { calls: 2, .. },
                why,
            } if !replays_to_the_end => {
                assert!(why.contains(&text), "{does}: {why}");
            }
            other => panic!("{does}: {other}"),
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{does}: the replay waited");
    is_identical(after, 1).await;
}

/// The recording of so many calls replays to its end.
async fn is_identical(recorded: Segment, calls: u64) {
    let outcome = replay::replay(&ENGINE, &MISBEHAVING, recorded, replay::Options::default()).await;
    match outcome.unwrap() {
        Outcome::Identical(tally) => assert_eq!(tally.calls, calls),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_guest_that_loops_for_ever_is_stopped_by_its_deadline() {
    let limits = Limits {
        cpu_ms: LIMIT_MS,
        ..Limits::default()
    };
    let says = &[
        "computed for more than 1500 ms by the wall clock, its limit `cpu_ms`",
        "trouble::loop_for_ever",
    ];
    check(Trouble {
        limits,
        ends_by: "deadline",
        replays_to_the_end: false,
        ..Trouble::trap("loop", says)
    })
    .await;
}

#[tokio::test]
async fn a_guest_that_allocates_without_end_is_stopped_by_its_memory() {
    let limits = Limits {
        memory_bytes: 16 << 20,
        ..Limits::default()
    };
    let says = &[
        "bytes of memory, above the limit `memory_bytes` of 16777216",
        "trouble::allocate_without_end",
    ];
    check(Trouble {
        limits,
        ends_by: "memory",
        replays_to_the_end: false,
        ..Trouble::trap("allocate", says)
    })
    .await;
}

#[tokio::test]
async fn a_guest_that_panics_traps() {
    let says = &[
        "trapped: panicked at ",
        "/trouble.rs:",
        ": on purpose",
        "trouble::panic_at_once",
    ];
    check(Trouble::trap("panic", says)).await;
}

#[tokio::test]
async fn a_guest_that_recurses_without_end_traps() {
    let says = &["call stack exhausted", "trouble::recurse_without_end", " more)"];
    check(Trouble::trap("recurse", says)).await;
}

#[tokio::test]
async fn a_guest_that_asks_for_ever_is_stopped_at_its_limit() {
    let limits = Limits {
        imports_per_call: 1000,
        ..Limits::default()
    };
    let says = &[
        "asked more than 1000 questions",
        "`clock.now-ms`",
        "`imports_per_call`",
        "trouble::ask_for_ever",
    ];
    check(Trouble {
        limits,
        ..Trouble::trap("ask", says)
    })
    .await;
}

#[tokio::test]
async fn a_guest_that_asks_with_too_much_is_stopped_at_its_limit() {
    let limits = Limits {
        question_bytes: 1 << 20,
        ..Limits::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let instances = instances(dir.path(), "ask-large", 100_000, limits);
    let mut instance = instances.open("default/bad", simulated()).await.unwrap();
    let stopped = reconcile(&mut instance, &wish("wild", "uid")).await.unwrap_err();
    assert!(
        stopped.contains(
            "asked with more than 1048576 bytes of arguments in one call, the last question was `api.list-tagged`"
        ) && stopped.contains("`question_bytes`"),
        "{stopped}"
    );
    drop(instance);
    let [recorded] = <[Segment; 1]>::try_from(segments(dir.path(), "misbehaving", "default/bad")).unwrap();
    assert_eq!(recorded.entries.len(), 12, "a call, ten questions, and its ending");
    let outcome = replay::replay(&ENGINE, &MISBEHAVING, recorded.clone(), replay::Options::default()).await;
    assert!(matches!(outcome.unwrap(), Outcome::Identical(Tally { calls: 1, .. })));

    // An old host without this limit wrote none, and the call went on.
    let mut old = recorded;
    let header = old.header.limits.get().replace(r#""question_bytes":1048576,"#, "");
    assert_ne!(header, old.header.limits.get());
    old.header.limits = RawValue::from_string(header).unwrap();
    let outcome = replay::replay(&ENGINE, &MISBEHAVING, old, replay::Options::default()).await;
    assert!(matches!(outcome.unwrap(), Outcome::AskedUnrecorded { .. }));
}

#[tokio::test]
async fn a_call_that_sleeps_for_ever_is_stopped_by_the_time_of_a_whole_call() {
    let limits = Limits {
        call_ms: LIMIT_MS,
        ..Limits::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let instances = instances(dir.path(), "sleep", 1 << 32, limits);
    let mut instance = instances.open("default/slow", Backends::default()).await.unwrap();
    let stopped = reconcile(&mut instance, &wish("wild", "uid")).await.unwrap_err();
    let says = "guest `misbehaving@1` in `reconciliation.reconcile`: took longer than 1500 ms, its limit `call_ms`";
    assert!(stopped.starts_with(says), "{stopped}");
    drop(instance);
    let [recorded] = <[Segment; 1]>::try_from(segments(dir.path(), "misbehaving", "default/slow")).unwrap();
    let Some(Event::Ending(Ending::Deadline(text))) = recorded.entries.last().map(|entry| &entry.event) else {
        panic!("the recording has no such ending")
    };
    assert_eq!(*text, stopped);
    let outcome = replay::replay(&ENGINE, &MISBEHAVING, recorded, replay::Options::default()).await;
    let Outcome::IdenticalAsFarAsRecorded { why, .. } = outcome.unwrap() else {
        panic!("the replay went on")
    };
    assert!(why.contains(says), "{why}");
}

#[tokio::test]
async fn a_call_that_loops_is_stopped_by_the_time_of_a_whole_call() {
    let limits = Limits {
        call_ms: LIMIT_MS,
        cpu_ms: 60_000,
        ..Limits::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let instances = instances(dir.path(), "loop", 0, limits);
    let mut instance = instances.open("default/slow", simulated()).await.unwrap();
    let stopped = reconcile(&mut instance, &wish("wild", "uid")).await.unwrap_err();
    assert!(
        stopped.contains("took longer than 1500 ms, its limit `call_ms`"),
        "{stopped}"
    );
}

#[tokio::test]
async fn a_state_is_rebuilt_within_the_limit_of_a_call() {
    for (does, export) in [("loop-in-snapshot", "snapshot"), ("loop-in-restore", "restore")] {
        let limits = Limits {
            cpu_ms: LIMIT_MS,
            ..Limits::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let calm = instances(dir.path(), "count", 0, limits);
        let mut instance = calm.open("default/bad", simulated()).await.unwrap();
        reconcile(&mut instance, &wish("wild", "uid")).await.unwrap();
        // The state is in the calls, or in the snapshot at the start of the next segment.
        if export == "restore" {
            drop(instance);
            instance = Instances {
                settings: json!({ "does": "count", "amount": 1 }),
                ..calm
            }
            .open("default/bad", simulated())
            .await
            .unwrap();
        }
        drop(instance);

        let wild = instances(dir.path(), does, 0, limits);
        let folder = instance_dir(&dir.path().join("journals"), "misbehaving", "default/bad");
        let newest = segment_files(&folder).unwrap().pop().unwrap().path;
        let recorded = std::fs::read_to_string(&newest).unwrap();
        // As if it had been so from the start.
        let recorded = recorded.replacen(r#""does":"count""#, &format!(r#""does":"{does}""#), 1);
        std::fs::write(&newest, recorded).unwrap();
        let begun = Instant::now();
        let error = wild.open("default/bad", simulated()).await.err().unwrap();
        let took = begun.elapsed();
        assert!(matches!(error, trueup_instance::OpenError::Start(_)), "{does}: {error}");
        let text = error.to_string();
        let says =
            format!("in `lifecycle.{export}`: computed for more than 1500 ms by the wall clock, its limit `cpu_ms`");
        assert!(text.contains(&says), "{does}: {text}");
        assert!(took < Duration::from_secs(10), "{does}: {took:?}");
    }
}

#[tokio::test]
async fn a_guest_adds_nothing_to_the_metrics_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let instances = instances(dir.path(), "foreign-metric", 0, Limits::default());
    let backends = simulated();
    let metrics = Arc::clone(&backends.metrics);
    let mut instance = instances.open("default/bad", backends).await.unwrap();
    reconcile(&mut instance, &wish("wild", "uid")).await.unwrap();
    let dropped = r#"trueup_metric_lines_dropped_total{guest="misbehaving"}"#;
    assert_eq!(metrics.number(dropped), Some(1.0));
    assert_eq!(metrics.number("trueup_keys"), None);
}

#[tokio::test]
async fn an_answer_above_its_limit_ends_the_call() {
    let limits = Limits {
        answer_bytes: 1 << 10,
        ..Limits::default()
    };
    let says = &[
        "the answer of `api.list-tagged` is",
        "above the limit `answer_bytes` of 1024",
    ];
    check(Trouble {
        limits,
        ..Trouble::trap("list", says)
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_log_and_metrics_is_dropped_and_counted() {
    const FLOOD: u64 = 50_000;
    const KEPT: u32 = 100;
    let limits = Limits {
        log_lines_per_call: KEPT,
        metric_lines_per_call: KEPT,
        ..Limits::default()
    };
    for (does, kept, dropped) in [
        ("log", None, r#"trueup_log_lines_dropped_total{guest="misbehaving"}"#),
        (
            "metrics",
            Some("misbehaving_lines_total"),
            r#"trueup_metric_lines_dropped_total{guest="misbehaving"}"#,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(KeptLog::default());
        let backends = Backends {
            log: log.clone(),
            ..simulated()
        };
        let metrics = Arc::clone(&backends.metrics);
        let instances = instances(dir.path(), does, FLOOD, limits);
        let mut instance = instances.open("default/bad", backends).await.unwrap();
        let good = another_guest();
        let args = wish("wild", "uid");
        let (answer, good) = tokio::join!(reconcile(&mut instance, &args), good);
        assert_eq!(answer.unwrap()["Ok"]["rounds"], 1, "{does}: the call succeeds");
        assert_eq!(good["Ok"]["created"], 4, "{does}");
        assert_eq!(
            metrics.number(dropped),
            Some((FLOOD - u64::from(KEPT)) as f64),
            "{does}"
        );
        match kept {
            None => assert_eq!(log.lines().len(), KEPT as usize, "{does}"),
            Some(series) => assert_eq!(metrics.number(series), Some(f64::from(KEPT)), "{does}"),
        }
        assert_eq!(
            reconcile(&mut instance, &args).await.unwrap()["Ok"]["rounds"],
            2,
            "{does}: a new call has its own lines"
        );
        drop(instance);
        let [recorded] = <[Segment; 1]>::try_from(segments(dir.path(), "misbehaving", "default/bad")).unwrap();
        assert!(
            recorded.entries.len() < 10,
            "{does}: what is dropped is not recorded either"
        );
        is_identical(recorded, 2).await;
    }
}

#[tokio::test]
async fn waiting_for_the_host_is_no_cpu_time() {
    const SLEEP_MS: u64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let instances = instances(
        dir.path(),
        "sleep",
        SLEEP_MS,
        Limits {
            cpu_ms: LIMIT_MS,
            ..Limits::default()
        },
    );
    // The machine's clock: the sleep takes real time.
    let mut instance = instances.open("default/slow", Backends::default()).await.unwrap();
    let begun = Instant::now();
    let answer = reconcile(&mut instance, &wish("wild", "uid")).await;
    assert_eq!(answer.unwrap()["Ok"]["rounds"], 1);
    assert!(begun.elapsed() >= Duration::from_millis(SLEEP_MS));
    drop(instance);
    let [recorded] = <[Segment; 1]>::try_from(segments(dir.path(), "misbehaving", "default/slow")).unwrap();
    // A sleeping guest is slow every time, a stalled machine is not.
    let mut took = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        is_identical(recorded.clone(), 1).await;
        took.push(begun.elapsed());
        if took.last() < Some(&Duration::from_millis(SLEEP_MS)) {
            return;
        }
    }
    panic!("a replay does not sleep: {took:?}");
}

#[tokio::test]
async fn a_snapshot_above_the_limit_of_an_answer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let instances = instances(
        dir.path(),
        "swell",
        1 << 20,
        Limits {
            answer_bytes: 1 << 16,
            ..Limits::default()
        },
    );
    let mut instance = instances.open("default/fat", simulated()).await.unwrap();
    let refused = instance.snapshot().await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "guest `misbehaving@1` in `lifecycle.snapshot`: failed: its answer is 1048578 bytes, above the limit `answer_bytes` of 65536"
    );
    assert!(!instance.is_usable());
}
