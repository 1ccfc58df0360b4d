//! WASI as any guest sees it, with a guest of a few lines: time and randomness come from the tape, waits use the host's
//! clock, output is logged, and there is no way out.
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::value::RawValue;
use trueup_base::clock::{Clock as _, VirtualClock};
use trueup_capabilities::bindings::host::log::Level;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::KeptLog;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::random::Seeded;
use trueup_capabilities::wasi::{PROVIDED, RANDOM_BYTES_PER_CALL_MAX, RESOURCES_MAX};
use trueup_capabilities::{Backends, Host, Identity};
use trueup_engine::{CallError, Engine, Guest, Instance, Options};
use trueup_journal::{Entry, Event, FORMAT, Header, Segment, Tape};
use wasmtime::component;

const CPU_MAX: Duration = Duration::from_secs(10);

/// The start of the clock in these tests.
const BEGUN_MS: u64 = 1_795_000_000_123;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    Engine::new(&Options {
        instances_max: 16,
        ..Options::default()
    })
    .unwrap()
});

static GUEST: LazyLock<Guest> = LazyLock::new(|| {
    ENGINE
        .load(&wat::parse_str(include_str!("wasi/guest.wat")).unwrap())
        .unwrap()
});

/// The backends, kept for inspection.
struct World {
    clock: Arc<VirtualClock>,
    log: Arc<KeptLog>,
}

/// A world, and a host that uses it.
fn world(tape: Tape, limits: Limits) -> (World, Host) {
    let world = World {
        clock: Arc::new(VirtualClock::new(BEGUN_MS)),
        log: Arc::default(),
    };
    let backends = Backends {
        clock: world.clock.clone(),
        random: Arc::new(Seeded::new(7, 0)),
        log: world.log.clone(),
        ..Backends::default()
    };
    let identity = Identity {
        guest: "test".into(),
        version: "1".into(),
        ..Identity::default()
    };
    let host = Host::new(identity, tape, Grants::default(), backends, limits);
    (world, host)
}

async fn start(mut host: Host) -> Instance<component::Instance> {
    host.begin_unrecorded_call();
    let linker = trueup_engine::linker_for(&ENGINE, &GUEST).unwrap();
    let instantiate = async |store: &mut wasmtime::Store<_>| linker.instantiate_async(store, &GUEST.component).await;
    let started = Instance::new(&ENGINE, host, CPU_MAX, instantiate).await;
    started.map_err(|(_, error)| error).unwrap()
}

async fn call(instance: &mut Instance<component::Instance>, export: &str, n: u64) -> Result<u64, CallError> {
    instance.host_mut().begin_unrecorded_call();
    let (store, exports) = instance.enter();
    let function = exports.get_typed_func::<(u64,), (u64,)>(&mut *store, export).unwrap();
    let result = function.call_async(store, (n,)).await.map(|(answer,)| answer);
    instance.leave(export, result)
}

/// The answer of one call, the requests of the call and the start, and the world afterwards.
async fn once(export: &str, n: u64) -> (Result<u64, CallError>, Vec<String>, World) {
    let (world, host) = world(Tape::memory(), Limits::default());
    let mut instance = start(host).await;
    let answer = call(&mut instance, export, n).await;
    let asked = asked(&instance.into_host().tape.take_entries());
    (answer, asked, world)
}

fn asked(entries: &[Entry]) -> Vec<String> {
    let text = |raw: &Option<Box<RawValue>>| raw.as_ref().map_or("nothing".to_owned(), |raw| raw.get().to_owned());
    let questions = entries.iter().map(|entry| match &entry.event {
        Event::Ask(ask) => format!("{} {} {}", ask.name, ask.args.get(), text(&ask.answer)),
        other => format!("{other:?}"),
    });
    questions.collect()
}

fn segment(entries: Vec<Entry>) -> Segment {
    let raw = || RawValue::from_string("{}".to_owned()).unwrap();
    let header = Header {
        format: FORMAT,
        guest: "test".into(),
        version: "1".into(),
        digest: "sha256:1".into(),
        world: "test".into(),
        host: "test".into(),
        settings: raw(),
        limits: raw(),
        snapshot: None,
    };
    Segment::of("test", 0, header, entries).unwrap()
}

/// Each of these makes a request.
const ASKING: [(&str, u64); 8] = [
    ("drawn-at-start", 0),
    ("wall-ms", 0),
    ("monotonic-ns", 0),
    ("chance", 0),
    ("bytes", 1_000),
    ("seed", 0),
    ("sleep", 2_500_000_000),
    ("first", 1_000_000),
];

#[tokio::test]
async fn a_replay_returns_the_same_time_and_randomness_from_the_start() {
    let (_, host) = world(Tape::memory(), Limits::default());
    let mut recording = start(host).await;
    let mut answers = Vec::new();
    for (export, n) in ASKING {
        answers.push(call(&mut recording, export, n).await.unwrap());
    }
    let entries = recording.into_host().tape.take_entries();
    assert!(
        asked(&entries)[0].starts_with("random.get-random-u64 {} "),
        "asked by the start function"
    );

    // Another time and another seed: the replay uses neither.
    let backends = Backends {
        random: Arc::new(Seeded::new(99, 1)),
        ..Backends::default()
    };
    let tape = Tape::replay(segment(entries), "sha256:1");
    let host = Host::new(
        Identity::default(),
        tape,
        Grants::default(),
        backends,
        Limits::default(),
    );
    let mut replaying = start(host).await;
    for ((export, n), answer) in ASKING.into_iter().zip(answers) {
        assert_eq!(call(&mut replaying, export, n).await.unwrap(), answer, "{export}");
    }
    let outcome = replaying.host().tape.replay_outcome().unwrap();
    assert!(outcome.is_identical(), "{outcome}");
}

#[tokio::test]
async fn the_same_seed_and_clock_give_the_same_answers_and_entries() {
    for (export, n) in ASKING {
        let (first, asked, _) = once(export, n).await;
        let (second, asked_again, _) = once(export, n).await;
        assert_eq!((first.unwrap(), asked), (second.unwrap(), asked_again), "{export}");
    }
}

#[tokio::test]
async fn questions_stand_on_the_tape_under_the_names_of_wit() {
    for (export, n, answer, questions) in [
        (
            "wall-ms",
            0,
            BEGUN_MS,
            &[r#"wall-clock.now {} {"seconds":1795000000,"nanoseconds":123000000}"#][..],
        ),
        (
            "monotonic-ns",
            0,
            BEGUN_MS * 1_000_000,
            &["monotonic-clock.now {} 1795000000123000000"],
        ),
        (
            "sleep",
            1_500_000,
            2_000_000,
            &[
                "monotonic-clock.now {} 1795000000123000000",
                r#"monotonic-clock.subscribe-duration {"when":1500000} 1795000000124500000"#,
                r#"pollable.block {"self":1795000000124500000} null"#,
                r#"pollable.ready {"self":1795000000124500000} true"#,
                "monotonic-clock.now {} 1795000000125000000",
            ],
        ),
        (
            "first",
            1_000_000,
            11,
            &[
                r#"monotonic-clock.subscribe-duration {"when":2000000} 1795000000125000000"#,
                r#"monotonic-clock.subscribe-duration {"when":1000000} 1795000000124000000"#,
                r#"poll.poll {"in":[1795000000125000000,1795000000124000000]} [1]"#,
            ],
        ),
        ("wait-for-output", 0, 1, &[]),
        ("print", 1, 0, &[]),
    ] {
        let (answered, asked, _) = once(export, n).await;
        assert_eq!(asked[1..], *questions, "{export}, after what its start asked");
        assert_eq!(answered.unwrap(), answer, "{export}");
    }
}

#[tokio::test]
async fn a_wait_is_on_the_hosts_clock_and_costs_no_cpu_time() {
    let (slept, _, world) = once("sleep", 3_600_000_000_000).await;
    assert_eq!(slept.unwrap(), 3_600_000_000_000);
    assert_eq!(world.clock.now_ms(), BEGUN_MS + 3_600_000);
}

#[tokio::test]
async fn what_is_printed_is_logged_line_by_line_and_no_further_than_the_limit() {
    let (_, _, world) = once("print", 2).await;
    let line = |level: Level, text: &str| (level, text.to_owned());
    assert_eq!(
        world.log.lines(),
        [
            line(Level::Info, "line"),
            line(Level::Info, "line"),
            line(Level::Info, "half a word"),
            line(Level::Warn, "to the end"),
        ]
    );
    let limits = Limits {
        log_lines_per_call: 3,
        ..Limits::default()
    };
    let (world, host) = self::world(Tape::memory(), limits);
    let mut instance = start(host).await;
    call(&mut instance, "print", 1_000).await.unwrap();
    assert_eq!(world.log.lines().len(), 3);
    assert_eq!(instance.host().meter.used.log_lines_dropped, 999);
}

#[tokio::test]
async fn what_was_printed_before_a_trap_is_seen() {
    let (trapped, _, world) = once("print-and-trap", 0).await;
    assert!(matches!(trapped, Err(CallError::Trap(_))));
    assert_eq!(world.log.lines(), [(Level::Warn, "to the end".to_owned())]);
}

#[tokio::test]
async fn there_is_no_environment_no_file_no_input_and_no_network() {
    // Nothing found, and both sockets are refused with `access-denied`.
    assert_eq!(once("outside", 0).await.0.unwrap(), 101);
}

#[tokio::test]
async fn what_a_guest_may_not_do_ends_its_call_and_says_why() {
    for (export, n, expected) in [
        (
            "exit",
            0,
            "guest `test@1` in `exit`: exited with status 0; a guest answers its calls, and must not exit".to_owned(),
        ),
        ("exit", 1, "exited with status 1".to_owned()),
        (
            "bytes",
            RANDOM_BYTES_PER_CALL_MAX + 1,
            "drew more than 1048576 random bytes in one call".to_owned(),
        ),
        (
            "bytes",
            u64::MAX,
            "drew more than 1048576 random bytes in one call".to_owned(),
        ),
        (
            "hoard",
            RESOURCES_MAX as u64,
            format!("keeps more than {RESOURCES_MAX} streams and pollables of WASI"),
        ),
    ] {
        let (ended, _, _) = once(export, n).await;
        let ended = ended.unwrap_err();
        assert!(
            matches!(&ended, CallError::Trap(text) if text.contains(&expected) && !text.contains('\n')),
            "{export}: {ended}"
        );
    }
    assert_eq!(once("hoard", RESOURCES_MAX as u64 / 2 - 1).await.0.unwrap(), 0);
}

#[tokio::test]
async fn what_an_instance_kept_goes_with_it() {
    let (_, host) = world(Tape::memory(), Limits::default());
    let mut instance = start(host).await;
    for _ in 0..3 {
        call(&mut instance, "hoard", RESOURCES_MAX as u64 / 2 - 1)
            .await
            .unwrap();
        instance = start(instance.into_host()).await;
    }
}

#[test]
fn every_interface_that_is_provided_is_linked() {
    let imports: String = PROVIDED
        .iter()
        .map(|interface| format!(r#"(import "{interface}@0.2.0" (instance))"#))
        .collect();
    let guest = ENGINE
        .load(&wat::parse_str(format!("(component {imports})")).unwrap())
        .unwrap();
    let linker = trueup_engine::linker_for(&ENGINE, &guest).unwrap();
    linker.instantiate_pre(&guest.component).unwrap();
}

#[test]
fn a_guest_that_imports_none_of_it_is_offered_none() {
    let guest = ENGINE.load(&wat::parse_str("(component)").unwrap()).unwrap();
    let linker = trueup_engine::linker_for(&ENGINE, &guest).unwrap();
    assert!(linker.instantiate_pre(&GUEST.component).is_err());
}

#[tokio::test]
async fn where_the_pool_has_no_room_the_operator_is_told() {
    let engine = Engine::new(&Options {
        instances_max: 1,
        ..Options::default()
    })
    .unwrap();
    let guest = engine.load(&wat::parse_str("(component)").unwrap()).unwrap();
    let linker = trueup_engine::linker_for(&engine, &guest).unwrap();
    let start = async || {
        let (_, host) = world(Tape::off(), Limits::default());
        let instantiate =
            async |store: &mut wasmtime::Store<_>| linker.instantiate_async(store, &guest.component).await;
        Instance::new(&engine, host, CPU_MAX, instantiate)
            .await
            .map_err(|(_, error)| error)
    };
    let first = start().await.unwrap();
    let refused = start().await.err().unwrap();
    assert_eq!(
        refused.to_string(),
        "guest `test@1` in `instantiate`: no room for one more instance in this host: maximum concurrent limit of 1 for \
         component instances reached; let fewer run at once, or spread them over hosts"
    );
    drop(first);
    start().await.unwrap();
}

#[test]
fn a_guest_of_too_many_modules_is_refused_in_words() {
    let component = |modules: usize| {
        let instances = "(core instance (instantiate $module))".repeat(modules);
        ENGINE.load(&wat::parse_str(format!("(component (core module $module) {instances})")).unwrap())
    };
    assert!(component(32).is_ok());
    let error = component(33).err().unwrap().to_string();
    assert!(
        error.starts_with("compiling the guest: ")
            && error.contains("33 core module instances")
            && error.contains("32"),
        "{error}"
    );
}
